// mhc_post. Macros: ACT, STREAMS, WIDTH. One thread a column; sums in stream order, every product and sum rounded on
// its own as in the reference.
#include "element.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    mhc_post(const act* y, const act* streams, const float* beta, const float* gamma, act* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH, first = i * STREAMS * WIDTH + at % WIDTH;
  float source[STREAMS];
  for (int s = 0; s < STREAMS; ++s) source[s] = to_float(streams[first + s * WIDTH]);
  for (int k = 0; k < STREAMS; ++k) {
    float total = __fmul_rn(to_float(y[at]), beta[i * STREAMS + k]);
    for (int s = 0; s < STREAMS; ++s)
      total = __fadd_rn(total, __fmul_rn(source[s], gamma[(i * STREAMS + s) * STREAMS + k]));
    out[first + k * WIDTH] = from_float<act>(total);
  }
}
