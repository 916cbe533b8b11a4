// mega_mhc, first launch: post of the previous site, collapse with the carried alpha, and partial mix products.
//
// A warp works on 8 rows and 64 columns at a time, eight lanes a row, so that every access covers whole 128-byte lines.
// The rounded result becomes the B operand of mma.m16n8k16 after one exchange between lanes (rows of the batch are N,
// the 24 mix rows as bf16 hi and lo are M = 48): it never passes through shared memory. The mix weights arrive in
// fragment order (ops/mega.py, arrange_mix) and stay in shared memory for all rows of the block.
#include "mxfp8.cuh"

#ifndef HIDDEN
#define HIDDEN 5120
#endif
#ifndef THREADS
#define THREADS 384
#endif
#ifndef MAX_UNITS  // 64-column units that one block's shared memory holds
#define MAX_UNITS 8
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM 1
#endif

using namespace dsv41c;

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kStreams = 4;
constexpr int kUnit = 64;                                // columns of one step of a warp
constexpr int kUnits = HIDDEN / kUnit;
constexpr int kWarps = THREADS / 32;
constexpr int kRows = 8;                                 // rows of a warp
constexpr int kStreamFragments = 6 * 32;                 // of 32 columns: [k16][m16][lane]
constexpr int kUnitVectors = 2 * kStreams * kStreamFragments;
constexpr int kPartial = 32;                             // floats of one row's partial: 24 products, square sum, pad
constexpr int kProducts = 25;
constexpr int kMixRow = 36;                              // floats of one row's mixes, padded against bank conflicts
static_assert(HIDDEN % kUnit == 0);

struct WarpShared {
  float mixes[kRows * kMixRow];           // [row][stream]: beta, gamma of the four sources, alpha, two unused
  float products[2][kRows * kProducts];   // one buffer is read while the next tile fills the other
};

__device__ __forceinline__ void mma(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void weights_arrive() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

// The 24 mixes of each of the warp's rows, regrouped by destination stream.
__device__ __forceinline__ void stage_mixes(const float* alpha, const float* beta, const float* gamma, int row0, int rows,
                                            int lane, float* mixes) {
  for (int i = lane; i < kRows * 6; i += 32) {
    const int r = i / 6, part = i % 6, row = min(row0 + r, rows - 1);
    const float* from = part == 0 ? alpha + row * 4 : part == 1 ? beta + row * 4 : gamma + row * 16 + (part - 2) * 4;
    const float4 v = *reinterpret_cast<const float4*>(from);
    float* to = mixes + r * kMixRow + (part == 0 ? 5 : part - 1);
    to[0] = v.x, to[8] = v.y, to[16] = v.z, to[24] = v.w;
  }
  __syncwarp();
}

struct Loaded {
  uint4 y, streams[kStreams];
};

// Eight columns of one row and destination stream: R' as bf16, with its square sum and its share of u added.
__device__ __forceinline__ uint4 post(const Loaded& in, const float* mixes, float& squares, float (&u)[8]) {
  const float4 m = *reinterpret_cast<const float4*>(mixes);
  const float2 n = *reinterpret_cast<const float2*>(mixes + 4);
  const float gamma[kStreams] = {m.y, m.z, m.w, n.x};
  float v[8], x[8];
  unpack(in.y, x);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = m.x * x[i];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    unpack(in.streams[j], x);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += gamma[j] * x[i];
  }
  const uint4 out = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
  unpack(out, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares += v[i] * v[i];
    u[i] += n.y * v[i];
  }
  return out;
}

__device__ __forceinline__ uint4 select(bool first, const uint4& a, const uint4& b) {
  return make_uint4(first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w);
}
__device__ __forceinline__ uint4 from_partner(const uint4& v) {
  return make_uint4(__shfl_xor_sync(kAll, v.x, 4), __shfl_xor_sync(kAll, v.y, 4), __shfl_xor_sync(kAll, v.z, 4),
                    __shfl_xor_sync(kAll, v.w, 4));
}

// Lanes 0..3 of eight keep the upper row and get its other half; lanes 4..7 likewise the lower row.
__device__ __forceinline__ void multiply(const uint4& upper, const uint4& lower, bool keeps_upper, const uint4* weights,
                                         float (&acc)[3][4]) {
  const uint4 got = from_partner(select(keeps_upper, lower, upper));
  const uint4 half[2] = {select(keeps_upper, upper, got), select(keeps_upper, got, lower)};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint4* a = weights + h * kStreams * kStreamFragments;
#pragma unroll
    for (int t = 0; t < 3; ++t) mma(acc[t], a[t * 32], half[h].x, half[h].y);
#pragma unroll
    for (int t = 0; t < 3; ++t) mma(acc[t], a[(3 + t) * 32], half[h].z, half[h].w);
  }
}

__device__ __forceinline__ float sum_of_eight(float v) {
  v += __shfl_xor_sync(kAll, v, 1);
  v += __shfl_xor_sync(kAll, v, 2);
  return v + __shfl_xor_sync(kAll, v, 4);
}

// Row r of the tile at to + r * stride. Mix row m and its low part m + 24 sit in one lane.
__device__ __forceinline__ void put_products(float* to, int stride, int live_rows, int lane, const float (&squares)[2],
                                             const float (&acc)[3][4]) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = t + 4 * i;  // columns 2t and 2t + 1 of the product are rows t and t + 4
    if (row < live_rows) {
      float* p = to + row * stride + g;
      p[0] = acc[0][i] + acc[1][2 + i];
      p[8] = acc[0][2 + i] + acc[2][i];
      p[16] = acc[1][i] + acc[2][2 + i];
    }
    const float total = sum_of_eight(squares[i]);
    const int square_row = (lane >> 3) + 4 * i;
    if ((lane & 7) == 0 && square_row < live_rows) to[square_row * stride + 24] = total;
  }
}

__device__ __forceinline__ void group_barrier(int group, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
}

}  // namespace

// grid: (column blocks, row groups). units: 64-column units of a block, at most MAX_UNITS. column_warps: neighbouring
// warps that share a tile of rows and split its units (1, 2 or 4); more make longer contiguous pieces of a row.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
mhc_post_mix(const uint16_t* __restrict__ y, const uint16_t* __restrict__ streams, const float* __restrict__ alpha,
             const float* __restrict__ beta, const float* __restrict__ gamma, const uint4* __restrict__ weights,
             uint16_t* __restrict__ streams_out, uint16_t* __restrict__ u, float* __restrict__ partials, int units,
             int column_warps, int rows) {
  extern __shared__ uint4 mix_weights[];
  __shared__ WarpShared shared[kWarps];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = warp / column_warps, member = warp % column_warps, groups = kWarps / column_warps;
  const int first_unit = blockIdx.x * units;
  const int my_units = min(units, kUnits - first_unit);
  for (int i = threadIdx.x; i < my_units * kUnitVectors; i += THREADS) {
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(mix_weights + i));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(weights + first_unit * kUnitVectors + i));
  }
  asm volatile("cp.async.commit_group;");
  float* partial = partials + static_cast<int64_t>(blockIdx.x) * rows * kPartial;
  int row0 = (blockIdx.y * groups + group) * kRows, buffer = 0;
  bool weights_ready = false;
  for (; row0 < rows; row0 += gridDim.y * groups * kRows) {
    stage_mixes(alpha, beta, gamma, row0, rows, lane, shared[warp].mixes);
    float acc[3][4] = {}, squares[2] = {};
#pragma unroll 1
    for (int unit = member; unit < my_units; unit += column_warps) {
      const uint32_t column = (first_unit + unit) * kUnit + (lane & 7) * 8;
      uint32_t row[2];
      Loaded in[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // offsets stay below 2**32: rows < 200,000
        row[i] = min(row0 + (lane >> 3) + 4 * i, rows - 1);
        in[i].y = load_streaming(y + (row[i] * HIDDEN + column));
#pragma unroll
        for (int s = 0; s < kStreams; ++s)
          in[i].streams[s] = load_streaming(streams + ((row[i] * kStreams + s) * HIDDEN + column));
      }
      if (!weights_ready) {  // the first rows are on their way while the weights land
        weights_arrive();
        weights_ready = true;
      }
      float collapsed[2][8] = {};
#pragma unroll 1  // unrolled, the loads of later streams move up and their registers spill
      for (int k = 0; k < kStreams; ++k) {
        uint4 out[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int r = (lane >> 3) + 4 * i;
          out[i] = post(in[i], shared[warp].mixes + r * kMixRow + k * 8, squares[i], collapsed[i]);
          if (row0 + r < rows) store_streaming(streams_out + ((row[i] * kStreams + k) * HIDDEN + column), out[i]);
        }
        multiply(out[0], out[1], (lane & 4) == 0, mix_weights + unit * kUnitVectors + k * kStreamFragments + lane, acc);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float(&c)[8] = collapsed[i];
        if (row0 + (lane >> 3) + 4 * i < rows)
          *reinterpret_cast<uint4*>(u + (row[i] * HIDDEN + column)) =
              make_uint4(pack(c[0], c[1]), pack(c[2], c[3]), pack(c[4], c[5]), pack(c[6], c[7]));
      }
    }
    if (!weights_ready) {  // a warp without a unit of its own still takes part in the one barrier
      weights_arrive();
      weights_ready = true;
    }
    const int live_rows = min(kRows, rows - row0);
    if (column_warps == 1) {
      put_products(partial + row0 * kPartial, kPartial, live_rows, lane, squares, acc);
      continue;
    }
    put_products(shared[warp].products[buffer], kProducts, kRows, lane, squares, acc);
    group_barrier(group, column_warps * 32);
    for (int r = member; r < live_rows; r += column_warps) {
      float total = 0.0f;
      for (int w = 0; w < column_warps; ++w)
        total += shared[warp - member + w].products[buffer][r * kProducts + min(lane, kProducts - 1)];
      partial[(row0 + r) * kPartial + lane] = total;
    }
    buffer ^= 1;
  }
  if (!weights_ready) weights_arrive();
}
