// moe_route. Macros: EXPERTS, TOPK. One block a row: a thread an expert, then the best keys one by one.
#include "route.h"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_route(const float* scores, const float* bias, const float* bias_vl, const int* rows, int* expert,
              float* expert_weight, float routed_scale) {
  __shared__ float score[EXPERTS], key[EXPERTS];
  __shared__ bool taken[EXPERTS];
  __shared__ int chosen[TOPK];
  const int64_t i = blockIdx.x;
  const int t = threadIdx.x;
  const float* added = row_at(rows, i).image() ? bias_vl : bias;
  for (int e = t; e < EXPERTS; e += THREADS) enter(score, key, taken, e, score_from(scores[i * EXPERTS + e]), added[e]);
  __syncthreads();
  if (t < 32) choose(score, key, taken, chosen, i, expert, expert_weight, routed_scale);
}
