// moe_gate. Macros: ACT, WEIGHT, WIDTH, EXPERTS, TOPK. One block a row: a warp an expert, then the best keys one by
// one.
#include "reduce.h"
#include "row_view.h"

using act = stored<ACT>;
using weight_type = stored<WEIGHT>;

constexpr int THREADS = 256;
constexpr int NONE = 0x7fffffff;

DEVICE float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// Score of expert e of the staged row: every lane of the warp returns it.
DEVICE float score_of(const float* x, const weight_type* weight, int e) {
  float sum = 0.0f;
  for (int d = threadIdx.x % 32; d < WIDTH; d += 32)
    sum = fmaf(x[d], to_float(weight[static_cast<int64_t>(e) * WIDTH + d]), sum);
  return sqrtf(softplus(warp_sum(sum)));
}

// Id of the best key that is left, the lowest id among equals; every lane of the warp returns it.
DEVICE int best_left(const float* key, const bool* taken) {
  float value = 0.0f;
  int id = NONE;
  for (int e = threadIdx.x % 32; e < EXPERTS; e += 32)
    if (!taken[e] && (id == NONE || key[e] > value)) value = key[e], id = e;
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(ALL_LANES, value, distance);
    const int other_id = __shfl_xor_sync(ALL_LANES, id, distance);
    if (other_id != NONE && (id == NONE || other > value || (other == value && other_id < id)))
      value = other, id = other_id;
  }
  return id;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_gate(const act* x, const weight_type* weight, const float* bias, const float* bias_vl, const int* rows,
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
    const float s = score_of(staged, weight, e), k = s + added[e];
    if (t % 32 == 0)
      score[e] = s, key[e] = k == k ? k : -__uint_as_float(0x7f800000u), taken[e] = false;  // NaN is the worst key
  }
  __syncthreads();
  if (t >= 32) return;
  for (int n = 0; n < TOPK; ++n) {
    const int id = best_left(key, taken);
    __syncwarp();
    if (t == 0) chosen[n] = id, taken[id] = true;
    __syncwarp();
  }
  float sum = 0.0f;
  for (int n = 0; n < TOPK; ++n) sum += score[chosen[n]];
  for (int n = t; n < TOPK; n += 32) {
    expert[i * TOPK + n] = chosen[n];
    expert_weight[i * TOPK + n] = routed_scale * score[chosen[n]] / (sum + 1e-20f);
  }
}
