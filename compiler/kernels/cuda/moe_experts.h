// Dot products with FP4 weights for moe_experts: a warp an output.
#pragma once

#include "reduce.h"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int TILE = 32;   // outputs of one block: one group of the quantizer
constexpr int GROUP = 32;  // FP4 elements that share one scale

// Staged float32 row: one word of padding a group keeps lanes that read different groups on different banks.
DEVICE int staged_at(int k) { return k + k / GROUP; }

template <int K, class T>
DEVICE void stage(const T* x, float* staged) {
  for (int k = threadIdx.x; k < K; k += THREADS) staged[staged_at(k)] = to_float(x[k]);
}

// Dot product of the staged row with row n of an FP4 weight [.., K/2], scales [.., K/32]; low nibble = even column.
// A lane sums whole groups, then the warp its lanes; every lane returns the sum.
template <int K>
DEVICE float dot_fp4(const float* staged, const uint8_t* codes, const uint8_t* scales, int64_t n) {
  const uint4* row = reinterpret_cast<const uint4*>(codes + n * (K / 2));
  float sum = 0.0f;
  for (int g = threadIdx.x % 32; g < K / GROUP; g += 32) {
    const uint4 packed = row[g];
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    const float* x = staged + g * (GROUP + 1);
    float part = 0.0f;
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int i = 0; i < 8; ++i) part = fmaf(e2m1_to_float(words[w] >> 4 * i & 15u), x[w * 8 + i], part);
    sum = fmaf(part, e8m0_to_float(scales[n * (K / GROUP) + g]), sum);
  }
  return warp_sum(sum);
}
