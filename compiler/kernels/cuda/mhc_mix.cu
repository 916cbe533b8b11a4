// mhc_mix. Macros: ACT, STREAMS, WIDTH, ITERATIONS. One block a row: projection, statistics, then Sinkhorn by the
// first STREAMS threads (row index = source stream, column = destination stream).
#include "reduce.h"

using act = stored<ACT>;

constexpr int THREADS = 256;
constexpr int K = STREAMS * WIDTH;
constexpr int OUTPUTS = STREAMS * (STREAMS + 2);

DEVICE float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

// Divides this thread's line of a by its sum plus eps.
DEVICE void normalise(float* a, int line_stride, int stride, float eps) {
  if (threadIdx.x < STREAMS) {
    float* line = a + threadIdx.x * line_stride;
    float sum = 0.0f;
    for (int e = 0; e < STREAMS; ++e) sum += line[e * stride];
    for (int e = 0; e < STREAMS; ++e) line[e * stride] /= sum + eps;
  }
  __syncwarp();
}

DEVICE void softmax_row(float* line, float eps) {
  float largest = line[0], sum = 0.0f;
  for (int k = 1; k < STREAMS; ++k) largest = fmaxf(largest, line[k]);
  for (int k = 0; k < STREAMS; ++k) sum += line[k] = expf(line[k] - largest);
  for (int k = 0; k < STREAMS; ++k) line[k] = line[k] / sum + eps;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    mhc_mix(const act* streams, const float* fn, const float* scale, const float* base, float* alpha, float* beta,
            float* gamma, float rms_eps, float hc_eps) {
  __shared__ float mix[OUTPUTS];
  const int64_t i = blockIdx.x;
  const int t = threadIdx.x;
  float sums[OUTPUTS + 1] = {};  // the projections, then the sum of squares
  for (int k = t; k < K; k += THREADS) {
    const float z = to_float(streams[i * K + k]);
#pragma unroll
    for (int o = 0; o < OUTPUTS; ++o) sums[o] = fmaf(z, fn[static_cast<int64_t>(o) * K + k], sums[o]);
    sums[OUTPUTS] = fmaf(z, z, sums[OUTPUTS]);
  }
  block_sums<THREADS, OUTPUTS + 1>(sums);
  const float factor = 1.0f / sqrtf(sums[OUTPUTS] / K + rms_eps);
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o)
    if (t == 0) mix[o] = sums[o] * factor * scale[o / STREAMS < 2 ? o / STREAMS : 2] + base[o];
  __syncthreads();
  if (t >= 32) return;
  float* a = mix + 2 * STREAMS;
  if (t < STREAMS) {
    alpha[i * STREAMS + t] = sigmoid(mix[t]) + hc_eps;
    beta[i * STREAMS + t] = 2.0f * sigmoid(mix[STREAMS + t]);
    softmax_row(a + t * STREAMS, hc_eps);
  }
  __syncwarp();
  normalise(a, 1, STREAMS, hc_eps);
  for (int n = 1; n < ITERATIONS; ++n) {
    normalise(a, STREAMS, 1, hc_eps);
    normalise(a, 1, STREAMS, hc_eps);
  }
  for (int e = t; e < STREAMS * STREAMS; e += 32) gamma[i * STREAMS * STREAMS + e] = a[e];
}
