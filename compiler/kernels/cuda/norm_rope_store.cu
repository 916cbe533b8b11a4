// norm_rope_store: RMSNorm, rotary and the MXFP8 cast of a row's key, written to the row's window ring in packed form:
// WIDTH e4m3 codes, then WIDTH / 32 ue8m0 scales. A warp takes a row (several rows when the row is shorter than a warp).
//
// The roundings to bf16 after the norm and after the rotary are those of the ops it replaces, and no product is
// contracted into a sum there, so the bytes are theirs too.
#include "mxfp8.cuh"

#ifndef WIDTH
#define WIDTH 512
#endif
#ifndef ROPE
#define ROPE 64
#endif

using namespace dsv41c;

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kThreads = 128;
constexpr int kVectors = WIDTH / 8;
constexpr int kLanes = kVectors < 32 ? kVectors : 32;  // of one row
constexpr int kEach = kVectors / kLanes;
constexpr int kKept = WIDTH - ROPE;  // columns that do not turn
constexpr int kEntry = WIDTH + WIDTH / 32;
constexpr int kPad = 4;
static_assert((kLanes & (kLanes - 1)) == 0 && kVectors % kLanes == 0 && WIDTH % 32 == 0 && ROPE % 8 == 0);

// Entries are only as aligned as their size: 528 bytes take 8-byte stores, 66 bytes 2-byte ones.
__device__ __forceinline__ void store_eight(uint8_t* to, const uint2& codes) {
  if constexpr (kEntry % 8 == 0) {
    *reinterpret_cast<uint2*>(to) = codes;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(codes.x >> (8 * i)), to[4 + i] = static_cast<uint8_t>(codes.y >> (8 * i));
  }
}

__device__ __forceinline__ void round_all(float (&e)[8]) {
  unpack(make_uint4(pack(e[0], e[1]), pack(e[2], e[3]), pack(e[4], e[5]), pack(e[6], e[7])), e);
}

struct Angles {
  float4 pairs[2];  // (cos, sin, cos, sin)
};

__device__ __forceinline__ void rotate(float (&e)[8], const Angles& angles) {
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const float4& q = angles.pairs[p / 2];
    const float cos = p % 2 ? q.z : q.x, sin = p % 2 ? q.w : q.y, a = e[2 * p], b = e[2 * p + 1];
    e[2 * p] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
    e[2 * p + 1] = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
  }
  round_all(e);
}

}  // namespace

// grid: ceildiv(rows, 128 / lanes of a row). The 1 lets the loads of weights and angles go out before the sum is known:
// without it ptxas moves them behind the shuffles to save 7 registers.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
norm_rope_store(const uint4* __restrict__ kv, const uint4* __restrict__ weight, const uint4* __restrict__ table,
                const float4* __restrict__ angles, uint8_t* __restrict__ ring, float eps, int ring_size, int rows) {
  const int lane = threadIdx.x % kLanes;
  const int row = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int at = min(row, rows - 1);
  // A table row in two loads, whatever the row is: a column at a time, each would wait for the test of the one before.
  const uint4 head = table[2 * at], tail = table[2 * at + 1];  // slot, position, base, first row; row count, _, _, flags
  uint4 v[kEach], norm[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) v[i] = __ldcs(kv + static_cast<int64_t>(at) * kVectors + lane + i * kLanes);
#pragma unroll
  for (int i = 0; i < kEach; ++i) norm[i] = weight[lane + i * kLanes];
  const int slot = static_cast<int>(head.x), position = static_cast<int>(head.y);
  Angles turn[kEach];  // asked for before the sum, whose shuffles then hide the way to memory
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if ((i + 1) * kLanes * 8 <= kKept) continue;
    const float4* from = angles + (static_cast<int64_t>(position) * ROPE + max(0, (lane + i * kLanes) * 8 - kKept)) / 4;
    turn[i].pairs[0] = from[0], turn[i].pairs[1] = from[1];
  }
  // Of a chunk longer than the ring only the last rows stay, so no ring entry is written twice.
  const bool stored = row < rows && !(tail.w & kPad) &&
                      at >= static_cast<int>(head.w) + static_cast<int>(tail.x) - ring_size;
  float part[2] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float e[8];
    unpack(v[i], e);
#pragma unroll
    for (int j = 0; j < 8; ++j) part[j % 2] += e[j] * e[j];
  }
  float squares = part[0] + part[1];
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset >>= 1) squares += __shfl_xor_sync(kAll, squares, offset);
  const float root = reciprocal_root(squares / WIDTH, eps);
  uint8_t* entry = ring + (static_cast<int64_t>(slot) * ring_size + position % ring_size) * kEntry;
  uint8_t *to = entry + lane * 8, *scale_to = entry + WIDTH + lane / 4;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int column = (lane + i * kLanes) * 8;
    float e[8], w[8];
    unpack(v[i], e);
    unpack(norm[i], w);
#pragma unroll
    for (int j = 0; j < 8; ++j) e[j] = __fmul_rn(__fmul_rn(e[j], root), w[j]);
    round_all(e);
    if (column >= kKept) rotate(e, turn[i]);
    const uint32_t code = scale_code(quad_max(amax_eight(e)));
    const uint2 codes = e4m3_eight(e, inverse_scale(code));
    if (stored) {
      store_eight(to + i * kLanes * 8, codes);
      if (lane % 4 == 0) scale_to[i * kLanes / 4] = static_cast<uint8_t>(code);
    }
  }
}
