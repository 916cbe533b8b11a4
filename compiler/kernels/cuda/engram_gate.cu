// engram_gate. Macros: ACT, WEIGHT, STREAMS, WIDTH. One block a (row, stream); image rows pass through.
#include "reduce.h"
#include "row_view.h"

using act = stored<ACT>;
using weight_type = stored<WEIGHT>;

constexpr int THREADS = 256;

DEVICE float gate_of(const float* sums, float eps) {  // sum of x^2, key^2, x * q_weight * k_weight * key
  const float n = WIDTH;
  const float d = sums[2] / sqrtf(n) / sqrtf(sums[0] / n + eps) / sqrtf(sums[1] / n + eps);
  const float size = sqrtf(max_or_nan(fabsf(d), 1e-6f));
  return 1.0f / (1.0f + expf(d == 0.0f ? 0.0f : -copysignf(size, d)));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    engram_gate(const act* streams, const act* kv, const weight_type* q_weight, const weight_type* k_weight,
                const int* rows, act* out, float eps) {
  const int64_t i = blockIdx.x / STREAMS;
  const int s = blockIdx.x % STREAMS;
  const act *x = streams + (i * STREAMS + s) * WIDTH, *key = kv + (i * (STREAMS + 1) + s) * WIDTH,
            *value = kv + (i * (STREAMS + 1) + STREAMS) * WIDTH;
  act* to = out + (i * STREAMS + s) * WIDTH;
  const bool image = row_at(rows, static_cast<int>(i)).image();
  float sums[3] = {};
  for (int d = threadIdx.x; d < WIDTH; d += THREADS) {
    const float a = to_float(x[d]), k = to_float(key[d]);
    sums[0] = fmaf(a, a, sums[0]);
    sums[1] = fmaf(k, k, sums[1]);
    sums[2] = fmaf(a * to_float(q_weight[s * WIDTH + d]), to_float(k_weight[s * WIDTH + d]) * k, sums[2]);
  }
  block_sums<THREADS, 3>(sums);
  const float open = gate_of(sums, eps);
  for (int d = threadIdx.x; d < WIDTH; d += THREADS)
    to[d] = image ? x[d] : from_float<act>(to_float(x[d]) + open * to_float(value[d]));
}
