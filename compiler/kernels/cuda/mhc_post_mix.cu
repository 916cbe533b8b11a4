// mega_mhc, first launch: post of the previous site, collapse with the carried alpha, and partial mix products.
//
// A warp owns 8 rows and walks its block's columns 64 at a time. The four lanes of a row hold 8 neighbouring columns
// each: 16-byte loads, and the rounded result is already the B operand of mma.m16n8k16 (rows of the batch are N, the
// 24 mix rows as bf16 hi and lo are M = 48), so nothing passes through shared memory and the loop has no barrier.
// The mix weights arrive in fragment order (ops/mega.py, arrange_mix) and stay in shared memory for all rows.
#include "mxfp8.cuh"

#ifndef HIDDEN
#define HIDDEN 5120
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef MAX_UNITS  // 64-column units that one block's shared memory holds
#define MAX_UNITS 4
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM 2
#endif

using namespace dsv41c;

namespace {

constexpr int kStreams = 4;
constexpr int kUnit = 64;                                 // columns of one step of a warp
constexpr int kUnits = HIDDEN / kUnit;
constexpr int kWarps = THREADS / 32;
constexpr int kRows = 8;                                  // rows of a warp
constexpr int kFragmentsPerUnit = 2 * kStreams * 2 * 3;   // [half][stream][k16][m16]
constexpr int kUnitBytes = kFragmentsPerUnit * 512;
constexpr int kPartial = 32;                              // floats of one row's partial: 24 products, square sum, pad
static_assert(HIDDEN % kUnit == 0);

__device__ __forceinline__ void mma(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// What one lane needs of its row's mixes.
struct Mixes {
  float alpha[4], beta[4], gamma[4][4];
};

__device__ __forceinline__ void unpack4(const float4& v, float (&out)[4]) {
  out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

__device__ __forceinline__ void read_mixes(const float* alpha, const float* beta, const float* gamma, int row, Mixes& m) {
  unpack4(load4(alpha + row * 4), m.alpha);
  unpack4(load4(beta + row * 4), m.beta);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) unpack4(load4(gamma + row * 16 + s * 4), m.gamma[s]);
}

// Eight columns of one row: R' of each stream (stored when live), the square sum and the mix products of two k16
// steps a stream. Returns u.
__device__ __forceinline__ uint4 eight_columns(const Mixes& m, const uint4& y, const uint4 (&r)[4], const uint4* weights,
                                               bool live, uint16_t* streams_out, float& squares, float (&acc)[3][4]) {
  float sum[8] = {};
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    float v[8], x[8];
    unpack(y, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = m.beta[k] * x[i];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      unpack(r[j], x);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += m.gamma[j][k] * x[i];
    }
    const uint4 out = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
    if (live) store_streaming(streams_out + k * HIDDEN, out);
    unpack(out, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      squares += v[i] * v[i];
      sum[i] += m.alpha[k] * v[i];
    }
    const uint4* a = weights + k * 6 * 32;
#pragma unroll
    for (int t = 0; t < 3; ++t) mma(acc[t], a[t * 32], out.x, out.y);
#pragma unroll
    for (int t = 0; t < 3; ++t) mma(acc[t], a[(3 + t) * 32], out.z, out.w);
  }
  return make_uint4(pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7]));
}

__device__ __forceinline__ void weights_arrive() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

__device__ __forceinline__ void store_partials(float* partial, int rows, int row0, int lane, float squares,
                                               const float (&acc)[3][4]) {
  const int g = lane >> 2, t = lane & 3;
  squares += __shfl_xor_sync(0xFFFFFFFFu, squares, 1);
  squares += __shfl_xor_sync(0xFFFFFFFFu, squares, 2);
  if (t == 0 && row0 + g < rows) partial[(row0 + g) * kPartial + 24] = squares;
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // mix row m and its low part m + 24 sit in one lane
    const int row = row0 + 2 * t + i;
    if (row >= rows) continue;
    float* p = partial + row * kPartial + g;
    p[0] = acc[0][i] + acc[1][2 + i];
    p[8] = acc[0][2 + i] + acc[2][i];
    p[16] = acc[1][i] + acc[2][2 + i];
  }
}

}  // namespace

// grid: (column blocks, row groups). units: 64-column units of a block, at most MAX_UNITS.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
mhc_post_mix(const uint16_t* __restrict__ y, const uint16_t* __restrict__ streams, const float* __restrict__ alpha,
             const float* __restrict__ beta, const float* __restrict__ gamma, const uint4* __restrict__ weights,
             uint16_t* __restrict__ streams_out, uint16_t* __restrict__ u, float* __restrict__ partials, int units, int rows) {
  extern __shared__ uint4 mix_weights[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, t = lane & 3;
  const int first_unit = blockIdx.x * units;
  const int my_units = min(units, kUnits - first_unit);
  for (int i = threadIdx.x; i < my_units * (kUnitBytes / 16); i += THREADS) {
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(mix_weights + i));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(weights + first_unit * (kUnitBytes / 16) + i));
  }
  asm volatile("cp.async.commit_group;");
  float* partial = partials + static_cast<int64_t>(blockIdx.x) * rows * kPartial;
  int row0 = (blockIdx.y * kWarps + warp) * kRows;
  bool weights_ready = false;
  if (row0 >= rows) weights_arrive();  // every warp takes part in the one barrier
  for (; row0 < rows; row0 += gridDim.y * kWarps * kRows) {
    const int row = min(row0 + (lane >> 2), rows - 1);
    const bool live = row0 + (lane >> 2) < rows;
    Mixes m;
    read_mixes(alpha, beta, gamma, row, m);
    float acc[3][4] = {}, squares = 0.0f;
#pragma unroll 1
    for (int unit = 0; unit < my_units; ++unit) {
      const uint32_t column = (first_unit + unit) * kUnit + t * 8;
      const uint32_t at = row * HIDDEN + column, stream_at = row * (kStreams * HIDDEN) + column;  // below 2**32: rows < 200,000
      uint4 yv[2], r[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        yv[half] = load_streaming(y + at + half * 32);
#pragma unroll
        for (int s = 0; s < kStreams; ++s)
          r[half][s] = load_streaming(streams + (stream_at + s * HIDDEN + half * 32));
      }
      if (!weights_ready) {  // the first rows are on their way while the weights land
        weights_arrive();
        weights_ready = true;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4* a = mix_weights + (unit * 2 + half) * kStreams * 6 * 32 + lane;
        const uint4 collapsed =
            eight_columns(m, yv[half], r[half], a, live, streams_out + (stream_at + half * 32), squares, acc);
        if (live) *reinterpret_cast<uint4*>(u + (at + half * 32)) = collapsed;
      }
    }
    store_partials(partial, rows, row0, lane, squares, acc);
  }
}
