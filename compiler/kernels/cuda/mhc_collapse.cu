// mhc_collapse. Macros: ACT, STREAMS, WIDTH. One thread a column; sums in stream order, every product and sum rounded
// on its own as in the reference.
#include "element.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    mhc_collapse(const act* streams, const float* alpha, act* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH, first = i * STREAMS * WIDTH + at % WIDTH;
  float total = __fmul_rn(to_float(streams[first]), alpha[i * STREAMS]);
  for (int s = 1; s < STREAMS; ++s)
    total = __fadd_rn(total, __fmul_rn(to_float(streams[first + s * WIDTH]), alpha[i * STREAMS + s]));
  out[at] = from_float<act>(total);
}
