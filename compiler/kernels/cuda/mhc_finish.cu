// mega_mhc, second launch. The first blocks turn the summed mix products into alpha, beta and gamma (sigmoid,
// Sinkhorn), a thread a row; every further block normalises one row of u and casts it to MXFP8. Those rows run
// backwards: the last ones that the first launch wrote are still in the L2 cache.
//
// CUDA C++, because the loads of the partials have to be in flight together: alone on an H200 this takes 5.9 and 6.9 us
// at 32 and 128 rows (80 splits), where the TileLang form, a loop over the splits, took 7.3 and 8.2.
#include "mxfp8.cuh"

#ifndef HIDDEN
#define HIDDEN 5120
#endif
#ifndef ITERATIONS
#define ITERATIONS 20
#endif
#ifndef THREADS
#define THREADS 128
#endif

using namespace dsv41c;

namespace {

constexpr int kWarps = THREADS / 32;
constexpr int kVectors = HIDDEN / 8;  // 16-byte pieces of a row
constexpr int kEach = (kVectors + THREADS - 1) / THREADS;
constexpr int kProducts = 25;         // 24 mix products and the square sum
constexpr int kMostRows = 32;         // of a block that computes mixes
constexpr int kWarpRows = kMostRows / kWarps;
constexpr int kInFlight = 10;         // loads of one lane
static_assert(HIDDEN % 32 == 0);

// Every kWarps-th split of one row's partials from `first` on, added in ascending order.
__device__ __forceinline__ float sum_shared(const float* p, int64_t stride, int splits, int first) {
  float total = 0.0f;
  for (; first < splits; first += kInFlight * kWarps) {
    float v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)  // clamped, then left out: a predicated load would serialise the loads
      v[i] = p[min(first + i * kWarps, splits - 1) * stride];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) total += first + i * kWarps < splits ? v[i] : 0.0f;
  }
  return total;
}

// All splits of the warp's rows, the rows side by side: their loads do not wait for each other.
__device__ __forceinline__ void sum_rows(const float* partials, int splits, int rows, int row0, int lane,
                                         float (*sums)[kProducts]) {
  float total[kWarpRows] = {};
#pragma unroll 2
  for (int split = 0; split < splits; ++split)
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
      total[r] += partials[(static_cast<int64_t>(split) * rows + min(row0 + r, rows - 1)) * kProducts + lane];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) sums[r][lane] = total[r];
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float inverse(float x) { return __fdividef(1.0f, x); }

// Row index is the source stream, column index the destination; the last step normalises the columns.
__device__ __forceinline__ void sinkhorn(float (&a)[4][4], float hc_eps) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float m = fmaxf(fmaxf(a[j][0], a[j][1]), fmaxf(a[j][2], a[j][3]));
#pragma unroll
    for (int k = 0; k < 4; ++k) a[j][k] = __expf(a[j][k] - m);
    const float r = inverse((a[j][0] + a[j][1]) + (a[j][2] + a[j][3]));
#pragma unroll
    for (int k = 0; k < 4; ++k) a[j][k] = a[j][k] * r + hc_eps;
  }
#pragma unroll 1
  for (int i = 0; i < ITERATIONS; ++i) {
    if (i > 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float r = inverse((a[j][0] + a[j][1]) + (a[j][2] + a[j][3]) + hc_eps);
#pragma unroll
        for (int k = 0; k < 4; ++k) a[j][k] *= r;
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float r = inverse((a[0][k] + a[1][k]) + (a[2][k] + a[3][k]) + hc_eps);
#pragma unroll
      for (int j = 0; j < 4; ++j) a[j][k] *= r;
    }
  }
}

__device__ __forceinline__ void write_mixes(const float* sums, const float* scale, const float* base, int row, float rms_eps,
                                            float hc_eps, float4* alpha, float4* beta, float4* gamma) {
  const float root = reciprocal_root(sums[24] / (4 * HIDDEN), rms_eps);
  float mix[24], a[4][4];
#pragma unroll
  for (int i = 0; i < 24; ++i) mix[i] = sums[i] * root * scale[i < 4 ? 0 : i < 8 ? 1 : 2] + base[i];
  alpha[row] = make_float4(sigmoid(mix[0]) + hc_eps, sigmoid(mix[1]) + hc_eps, sigmoid(mix[2]) + hc_eps, sigmoid(mix[3]) + hc_eps);
  beta[row] = make_float4(2 * sigmoid(mix[4]), 2 * sigmoid(mix[5]), 2 * sigmoid(mix[6]), 2 * sigmoid(mix[7]));
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = mix[8 + i];
  sinkhorn(a, hc_eps);
#pragma unroll
  for (int j = 0; j < 4; ++j) gamma[row * 4 + j] = make_float4(a[j][0], a[j][1], a[j][2], a[j][3]);
}

__device__ __forceinline__ void norm_row(const uint4* from, const uint4* weight, int64_t first_vector, float eps, uint4* x,
                                         uint2* codes, uint8_t* scales) {
  __shared__ float squares[kWarps];
  uint4 v[kEach], norm[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = threadIdx.x + i * THREADS;
    v[i] = at < kVectors ? from[first_vector + at] : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) norm[i] = weight[min(static_cast<int>(threadIdx.x) + i * THREADS, kVectors - 1)];
  float part = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float e[8];
    unpack(v[i], e);
#pragma unroll
    for (int j = 0; j < 8; ++j) part += e[j] * e[j];
  }
  part = warp_sum(part);
  if ((threadIdx.x & 31) == 0) squares[threadIdx.x >> 5] = part;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += squares[w];
  const float root = reciprocal_root(total / HIDDEN, eps);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = threadIdx.x + i * THREADS;
    float e[8], w[8];
    unpack(v[i], e);
    unpack(norm[i], w);
#pragma unroll
    for (int j = 0; j < 8; ++j) e[j] = e[j] * root * w[j];
    const uint4 out = make_uint4(pack(e[0], e[1]), pack(e[2], e[3]), pack(e[4], e[5]), pack(e[6], e[7]));
    unpack(out, e);
    const uint32_t code = scale_code(quad_max(amax_eight(e)));
    if (at < kVectors) {
      const int64_t to = first_vector + at;
      x[to] = out;
      codes[to] = e4m3_eight(e, inverse_scale(code));
      if ((at & 3) == 0) scales[to >> 2] = static_cast<uint8_t>(code);
    }
  }
}

}  // namespace

// grid: ceildiv(rows, mix_rows) + rows. mix_rows: rows of a block that computes mixes, 1 (its warps share the splits) or
// 32. partials: [splits][rows][25].
extern "C" __global__ void __launch_bounds__(THREADS)
mhc_finish(const float* __restrict__ partials, const uint4* __restrict__ u, const uint4* __restrict__ weight,
           const float* __restrict__ scale, const float* __restrict__ base, float4* __restrict__ alpha,
           float4* __restrict__ beta, float4* __restrict__ gamma, uint4* __restrict__ x, uint2* __restrict__ codes,
           uint8_t* __restrict__ scales, float rms_eps, float hc_eps, int splits, int mix_rows, int rows) {
  __shared__ float sums[kMostRows][kProducts];
  const int mix_blocks = (rows + mix_rows - 1) / mix_rows;
  if (blockIdx.x >= mix_blocks) {
    const int64_t row = rows - 1 - (static_cast<int>(blockIdx.x) - mix_blocks);
    norm_row(u, weight, row * kVectors, rms_eps, x, codes, scales);
    return;
  }
  const int lane = min(static_cast<int>(threadIdx.x & 31), kProducts - 1), warp = threadIdx.x >> 5;
  const int row0 = blockIdx.x * mix_rows;
  if (mix_rows == 1) {
    sums[warp][lane] = sum_shared(partials + row0 * kProducts + lane, static_cast<int64_t>(rows) * kProducts, splits, warp);
    __syncthreads();
    if (warp > 0) return;
    float total = 0.0f;
    for (int w = 0; w < kWarps; ++w) total += sums[w][lane];
    __syncwarp();
    sums[0][lane] = total;
    __syncwarp();
  } else {
    sum_rows(partials, splits, rows, row0 + warp * kWarpRows, lane, sums + warp * kWarpRows);
    __syncthreads();
  }
  if (threadIdx.x < mix_rows && row0 + static_cast<int>(threadIdx.x) < rows)
    write_mixes(sums[threadIdx.x], scale, base, row0 + threadIdx.x, rms_eps, hc_eps, alpha, beta, gamma);
}
