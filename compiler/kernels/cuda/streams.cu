// mhc_collapse, stream_mean, mhc_post. Macros: ACT, STREAMS, WIDTH. One thread a column; sums in stream order, every
// product and sum rounded on its own as in the reference.
#include "numbers.h"

extern "C" __global__ void mhc_collapse(const ACT* streams, const float* alpha, ACT* out, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH, first = i * STREAMS * WIDTH + at % WIDTH;
  float total = __fmul_rn(to_float(streams[first]), alpha[i * STREAMS]);
  for (int s = 1; s < STREAMS; ++s)
    total = __fadd_rn(total, __fmul_rn(to_float(streams[first + s * WIDTH]), alpha[i * STREAMS + s]));
  out[at] = from_float<ACT>(total);
}

extern "C" __global__ void stream_mean(const ACT* streams, ACT* out, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t first = at / WIDTH * STREAMS * WIDTH + at % WIDTH;
  float total = to_float(streams[first]);
  for (int s = 1; s < STREAMS; ++s) total = __fadd_rn(total, to_float(streams[first + s * WIDTH]));
  out[at] = from_float<ACT>(__fdiv_rn(total, STREAMS));
}

extern "C" __global__ void mhc_post(const ACT* y, const ACT* streams, const float* beta, const float* gamma, ACT* out, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH, first = i * STREAMS * WIDTH + at % WIDTH;
  float source[STREAMS];
  for (int s = 0; s < STREAMS; ++s) source[s] = to_float(streams[first + s * WIDTH]);
  for (int k = 0; k < STREAMS; ++k) {
    float total = __fmul_rn(to_float(y[at]), beta[i * STREAMS + k]);
    for (int s = 0; s < STREAMS; ++s)
      total = __fadd_rn(total, __fmul_rn(source[s], gamma[(i * STREAMS + s) * STREAMS + k]));
    out[first + k * WIDTH] = from_float<ACT>(total);
  }
}
