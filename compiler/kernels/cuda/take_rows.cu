// take_rows. Macros: UNIT_BYTES (copied at once: 16, 8, 4, 2 or 1), UNITS (of one row). Negative indices take row 0.
#include "copy_unit.h"
#include "element.h"

using unit = Unit<UNIT_BYTES>::type;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    take_rows(const unit* x, const int* index, unit* out, int num_rows, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * UNITS) return;
  const int from = min(max(index[at / UNITS], 0), num_rows - 1);
  out[at] = x[static_cast<int64_t>(from) * UNITS + at % UNITS];
}
