// stream_mean. Macros: ACT, STREAMS, WIDTH. One thread a column; sums in stream order, every product and sum rounded on
// its own as in the reference.
#include "element.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1) stream_mean(const act* streams, act* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t first = at / WIDTH * STREAMS * WIDTH + at % WIDTH;
  float total = to_float(streams[first]);
  for (int s = 1; s < STREAMS; ++s) total = __fadd_rn(total, to_float(streams[first + s * WIDTH]));
  out[at] = from_float<act>(__fdiv_rn(total, STREAMS));
}
