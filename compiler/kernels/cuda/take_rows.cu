// take_rows. Macros: UNIT (type that is copied at once), UNITS (of one row). Negative indices take row 0.
#include "numbers.h"

extern "C" __global__ void take_rows(const UNIT* x, const int* index, UNIT* out, int num_rows, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(count) * UNITS) return;
  const int from = min(max(index[at / UNITS], 0), num_rows - 1);
  out[at] = x[static_cast<int64_t>(from) * UNITS + at % UNITS];
}
