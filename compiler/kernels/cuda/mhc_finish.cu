// mega_mhc, second launch: one block a row. The first warp turns the summed mix products into alpha, beta and gamma
// (sigmoid, Sinkhorn); the others normalise u and cast it to MXFP8. Rows run backwards: the last ones that the first
// launch wrote are still in the L2 cache.
#include "mxfp8.cuh"

#ifndef HIDDEN
#define HIDDEN 5120
#endif
#ifndef NORM_WARPS
#define NORM_WARPS 5
#endif
#ifndef ITERATIONS
#define ITERATIONS 20
#endif

using namespace dsv41c;

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kWarps = NORM_WARPS + 1;
constexpr int kThreads = kWarps * 32;
constexpr int kVectors = HIDDEN / 8;  // 16-byte pieces of a row
constexpr int kEach = (kVectors + NORM_WARPS * 32 - 1) / (NORM_WARPS * 32);
constexpr int kPartial = 32;
constexpr int kProducts = 25;         // 24 mix products and the square sum
static_assert(HIDDEN % 32 == 0);

// This warp's share of the partials of one row: every kWarps-th split, added in ascending order.
__device__ __forceinline__ float sum_partials(const float* partials, int splits, int rows, int row, int warp, int lane) {
  const float* p = partials + static_cast<int64_t>(row) * kPartial + lane;
  const int64_t stride = static_cast<int64_t>(rows) * kPartial;
  float total = 0.0f;
  for (int first = warp; first < splits; first += 8 * kWarps) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int split = first + i * kWarps;  // clamped, then left out: a predicated load would serialise the loads
      v[i] = p[min(split, splits - 1) * stride];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) total += first + i * kWarps < splits ? v[i] : 0.0f;
  }
  return total;
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Sum over the four lanes whose ids differ in `a` and `b`.
__device__ __forceinline__ float four(float v, int a, int b) {
  v += __shfl_xor_sync(kAll, v, a);
  return v + __shfl_xor_sync(kAll, v, b);
}

// Lane 4 * source + destination holds one entry of gamma; lanes 16..31 repeat lanes 0..15.
__device__ __forceinline__ float sinkhorn(float v, float hc_eps) {
  float m = fmaxf(v, __shfl_xor_sync(kAll, v, 1));
  m = fmaxf(m, __shfl_xor_sync(kAll, m, 2));
  v = __expf(v - m);
  v = __fdividef(v, four(v, 1, 2)) + hc_eps;
  v = __fdividef(v, four(v, 4, 8) + hc_eps);
  for (int i = 1; i < ITERATIONS; ++i) {
    v = __fdividef(v, four(v, 1, 2) + hc_eps);
    v = __fdividef(v, four(v, 4, 8) + hc_eps);
  }
  return v;
}

__device__ __forceinline__ void write_mixes(const float (*sums)[kProducts], const float* scale, const float* base, int row,
                                            int lane, float rms_eps, float hc_eps, float* alpha, float* beta, float* gamma) {
  float mix = 0.0f;
  for (int w = 0; w < kWarps; ++w) mix += lane < kProducts ? sums[w][lane] : 0.0f;
  const float squares = __shfl_sync(kAll, mix, 24);
  const int group = lane < 4 ? 0 : lane < 8 ? 1 : 2;
  mix *= reciprocal_root(squares / (4 * HIDDEN), rms_eps);
  mix = mix * scale[group] + base[min(lane, 23)];
  if (lane < 4) alpha[row * 4 + lane] = sigmoid(mix) + hc_eps;
  if (lane >= 4 && lane < 8) beta[row * 4 + lane - 4] = 2.0f * sigmoid(mix);
  const float entry = sinkhorn(__shfl_sync(kAll, mix, 8 + (lane & 15)), hc_eps);
  if (lane < 16) gamma[row * 16 + lane] = entry;
}

}  // namespace

// grid: rows.
extern "C" __global__ void __launch_bounds__(kThreads)
mhc_finish(const float* __restrict__ partials, const uint16_t* __restrict__ u, const uint16_t* __restrict__ weight,
           const float* __restrict__ scale, const float* __restrict__ base, float* __restrict__ alpha,
           float* __restrict__ beta, float* __restrict__ gamma, uint16_t* __restrict__ x, uint8_t* __restrict__ codes,
           uint8_t* __restrict__ scales, float rms_eps, float hc_eps, int splits, int rows) {
  __shared__ float sums[kWarps][kProducts];
  __shared__ float squares[kWarps];
  const int row = rows - 1 - blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first = threadIdx.x - 32;  // of this thread's vectors; the first warp has none
  const uint4* from = reinterpret_cast<const uint4*>(u + static_cast<int64_t>(row) * HIDDEN);
  uint4 v[kEach], norm[kEach];
  float part = 0.0f;
  if (warp > 0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + i * NORM_WARPS * 32;
      v[i] = at < kVectors ? from[at] : make_uint4(0, 0, 0, 0);
      norm[i] = reinterpret_cast<const uint4*>(weight)[min(at, kVectors - 1)];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float e[8];
      unpack(v[i], e);
#pragma unroll
      for (int j = 0; j < 8; ++j) part += e[j] * e[j];
    }
    part = warp_sum(part);
    if (lane == 0) squares[warp] = part;
  }
  const float share = sum_partials(partials, splits, rows, row, warp, lane);
  if (lane < kProducts) sums[warp][lane] = share;
  __syncthreads();
  if (warp == 0) {
    write_mixes(sums, scale, base, row, lane, rms_eps, hc_eps, alpha, beta, gamma);
    return;
  }
  float total = 0.0f;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total += squares[w];
  const float root = reciprocal_root(total / HIDDEN, rms_eps);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = first + i * NORM_WARPS * 32;
    float e[8], w[8];
    unpack(v[i], e);
    unpack(norm[i], w);
#pragma unroll
    for (int j = 0; j < 8; ++j) e[j] = e[j] * root * w[j];
    const uint4 out = make_uint4(pack(e[0], e[1]), pack(e[2], e[3]), pack(e[4], e[5]), pack(e[6], e[7]));
    unpack(out, e);
    const uint32_t code = scale_code(quad_max(amax_eight(e)));
    if (at >= kVectors) continue;
    const int64_t to = static_cast<int64_t>(row) * kVectors + at;
    reinterpret_cast<uint4*>(x)[to] = out;
    reinterpret_cast<uint2*>(codes)[to] = e4m3_eight(e, inverse_scale(code));
    if ((at & 3) == 0) scales[to >> 2] = static_cast<uint8_t>(code);
  }
}
