// Reductions in a fixed order: butterflies inside a warp, then the warps one after the other.
#pragma once

#include "numbers.h"

constexpr unsigned ALL_LANES = 0xffffffffu;

// Every lane gets the sum of the warp.
DEVICE float warp_sum(float v) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) v = __fadd_rn(v, __shfl_xor_sync(ALL_LANES, v, distance));
  return v;
}

// Largest magnitude of LANES neighbouring lanes, NaN if one of them is.
template <int LANES>
DEVICE float lanes_max_or_nan(float v) {
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2)
    v = max_or_nan(v, __shfl_xor_sync(ALL_LANES, v, distance));
  return v;
}

// sums[o] becomes the sum of the block's sums[o] in every thread. All THREADS threads must call it.
template <int THREADS, int COUNT>
DEVICE void block_sums(float* sums) {
  __shared__ float partial[COUNT][THREADS / 32];
#pragma unroll
  for (int o = 0; o < COUNT; ++o) {
    const float sum = warp_sum(sums[o]);
    if (threadIdx.x % 32 == 0) partial[o][threadIdx.x / 32] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int o = 0; o < COUNT; ++o) {
    float sum = partial[o][0];
    for (int w = 1; w < THREADS / 32; ++w) sum += partial[o][w];
    sums[o] = sum;
  }
  __syncthreads();
}
