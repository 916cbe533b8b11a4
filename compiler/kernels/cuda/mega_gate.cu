// mega_gate. Macros: ACT, WEIGHT, WIDTH, EXPERTS, TOPK. One block a row: a warp an expert, then the best keys one by
// one.
#include "route.h"

using act = stored<ACT>;
using weight_type = stored<WEIGHT>;

constexpr int THREADS = 256;

// Score of expert e of the staged row: every lane of the warp returns it.
DEVICE float score_of(const float* x, const weight_type* weight, int e) {
  float sum = 0.0f;
  for (int d = threadIdx.x % 32; d < WIDTH; d += 32)
    sum = fmaf(x[d], to_float(weight[static_cast<int64_t>(e) * WIDTH + d]), sum);
  return score_from(warp_sum(sum));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    mega_gate(const act* x, const weight_type* weight, const float* bias, const float* bias_vl, const int* rows,
              int* expert, float* expert_weight, float routed_scale) {
  __shared__ float staged[WIDTH], score[EXPERTS], key[EXPERTS];
  __shared__ bool taken[EXPERTS];
  __shared__ int chosen[TOPK];
  const int64_t i = blockIdx.x;
  const int t = threadIdx.x;
  for (int d = t; d < WIDTH; d += THREADS) staged[d] = to_float(x[i * WIDTH + d]);
  __syncthreads();
  const float* added = row_at(rows, i).image() ? bias_vl : bias;
  for (int e = t / 32; e < EXPERTS; e += THREADS / 32) {
    const float s = score_of(staged, weight, e);
    if (t % 32 == 0) enter(score, key, taken, e, s, added[e]);
  }
  __syncthreads();
  if (t < 32) choose(score, key, taken, chosen, i, expert, expert_weight, routed_scale);
}
