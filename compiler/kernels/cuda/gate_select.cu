// mega_gate, second launch: adds the K splits of the gate product, sqrt(softplus), bias, stable top-k, normalised weights.
//
// splits 1: a warp takes a row. Otherwise the block takes one row and its warps share the splits. The choice is two
// warp-wide integer reductions (redux.sync), which TileLang has no words for.
#include <cstdint>

#ifndef EXPERTS
#define EXPERTS 384
#endif
#ifndef TOPK
#define TOPK 6
#endif

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kWarps = 4;
constexpr int kEach = (EXPERTS + 31) / 32;  // experts of a lane: lane + 32 * i
constexpr int kFlags = 7, kRowColumns = 8, kImage = 2;
static_assert(TOPK <= 32 && TOPK <= EXPERTS);

// Unsigned order equals float order; NaN counts as -inf.
__device__ __forceinline__ uint32_t sort_key(float v) {
  const uint32_t bits = __float_as_uint(v);
  if (v != v) return 0x007FFFFFu;  // as -inf; 0 is kept for entries already taken and for lanes without an expert
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float root_softplus(float x) {
  const float soft = x > 20.0f ? x : log1pf(expf(x));
  return sqrtf(soft);
}

// One row's scores by lane -> ids in descending order (ties: the lower id) and their weights.
__device__ __forceinline__ void select(const float (&logit)[kEach], const float* bias, int lane, float routed_scale,
                                       int32_t* expert, float* weight) {
  float score[kEach];
  uint32_t key[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = lane + 32 * i;
    score[i] = root_softplus(logit[i]);
    key[i] = id < EXPERTS ? sort_key(score[i] + bias[id]) : 0;
  }
  float mine = 0.0f, total = 0.0f;
  int my_id = 0;
#pragma unroll 1
  for (int choice = 0; choice < TOPK; ++choice) {
    uint32_t best = key[0];
#pragma unroll
    for (int i = 1; i < kEach; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(kAll, best);
    uint32_t id = 0xFFFFFFFFu;
    float s = 0.0f;
#pragma unroll
    for (int i = kEach - 1; i >= 0; --i)
      if (key[i] == best) id = lane + 32 * i, s = score[i];
    const uint32_t chosen = __reduce_min_sync(kAll, id);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane + 32 * i == static_cast<int>(chosen)) key[i] = 0;
    s = __shfl_sync(kAll, s, chosen & 31);
    total += s;
    if (lane == choice) mine = s, my_id = static_cast<int>(chosen);
  }
  if (lane < TOPK) {
    expert[lane] = my_id;
    weight[lane] = routed_scale * mine / (total + 1e-20f);
  }
}

}  // namespace

// grid: splits == 1 ? ceildiv(rows, 4) : rows. products: [splits][rows][EXPERTS].
extern "C" __global__ void __launch_bounds__(kWarps * 32)
gate_select(const float* __restrict__ products, const float* __restrict__ bias, const float* __restrict__ bias_image,
            const int32_t* __restrict__ table, int32_t* __restrict__ expert, float* __restrict__ weight,
            float routed_scale, int splits, int rows) {
  __shared__ float shared[kWarps][kEach * 32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const bool alone = splits == 1;
  const int row = alone ? blockIdx.x * kWarps + warp : blockIdx.x;
  if (row >= rows) return;  // only without a barrier below: a shared row is always inside
  const int64_t stride = static_cast<int64_t>(rows) * EXPERTS;
  const float* p = products + static_cast<int64_t>(row) * EXPERTS;
  float logit[kEach] = {};
#pragma unroll 2
  for (int split = alone ? 0 : warp; split < splits; split += kWarps)
#pragma unroll
    for (int i = 0; i < kEach; ++i) logit[i] += p[split * stride + min(lane + 32 * i, EXPERTS - 1)];
  if (!alone) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) shared[warp][lane + 32 * i] = logit[i];
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      logit[i] = shared[0][lane + 32 * i];
      for (int w = 1; w < kWarps; ++w) logit[i] += shared[w][lane + 32 * i];
    }
  }
  const bool image = table[row * kRowColumns + kFlags] & kImage;
  select(logit, image ? bias_image : bias, lane, routed_scale, expert + row * TOPK, weight + row * TOPK);
}
