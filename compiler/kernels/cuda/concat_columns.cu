// concat_columns: one of the parts. Macros: UNIT_BYTES (of an element), WIDTH of the part, OFFSET and JOINED of the
// result.
#include "copy_unit.h"
#include "element.h"

using unit = Unit<UNIT_BYTES>::type;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    concat_columns(const unit* part, unit* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  out[at / WIDTH * JOINED + OFFSET + at % WIDTH] = part[at];
}
