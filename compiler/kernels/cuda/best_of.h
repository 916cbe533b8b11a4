// The best K of a stream of (score, id), kept sorted in shared memory by one block. The order is total (score
// descending, id ascending), so the result does not depend on how the stream was cut.
#pragma once

#include "numbers.h"

// Larger keys are better; 0 is none. A NaN score counts as -inf, -0 equals +0.
DEVICE uint64_t ranked(float score, int id) {
  const uint32_t u = score != score ? 0xff800000u : score == 0.0f ? 0u : __float_as_uint(score);
  const uint32_t ordered = u & 0x80000000u ? ~u : u | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
DEVICE int id_of(uint64_t key) { return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key)); }

// Bitonic sort, largest first. COUNT is a power of two; all THREADS threads must call it.
template <int COUNT, int THREADS>
DEVICE void sort_descending(uint64_t* keys) {
  for (int size = 2; size <= COUNT; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int i = threadIdx.x; i < COUNT / 2; i += THREADS) {
        const int low = 2 * i - (i & (stride - 1)), high = low + stride;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == ((low & size) == 0)) keys[low] = b, keys[high] = a;
      }
      __syncthreads();
    }
}

constexpr int power_of_two_from(int n) { return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2); }

// STEP keys are offered at a time, one by each of the first STEP threads.
template <int K, int STEP, int THREADS>
struct BestOf {
  static constexpr int HALF = power_of_two_from(K > STEP ? K : STEP);
  static constexpr int BYTES = 2 * HALF * 8;
  uint64_t* keys;  // the best so far in order, then what came since
  int waiting;

  __device__ __forceinline__ explicit BestOf(void* memory) : keys(static_cast<uint64_t*>(memory)), waiting(0) {
    for (int i = threadIdx.x; i < 2 * HALF; i += THREADS) keys[i] = 0;
    __syncthreads();
  }

  // Every thread calls it; key 0 offers nothing.
  __device__ __forceinline__ void offer(uint64_t key) {
    const bool offers = threadIdx.x < STEP;
    if (!__syncthreads_or(offers && key > keys[K - 1])) return;
    if (offers) keys[HALF + waiting + threadIdx.x] = key;
    waiting += STEP;
    if (waiting + STEP > HALF) merge();
  }

  // The chosen ids ascending, padded with -1.
  __device__ __forceinline__ void write_ascending(int* out) {
    merge();
    for (int i = threadIdx.x; i < 2 * HALF; i += THREADS)
      keys[i] = i < K && keys[i] != 0 ? 0xffffffffu - static_cast<uint32_t>(id_of(keys[i])) : 0;
    __syncthreads();
    sort_descending<2 * HALF, THREADS>(keys);
    for (int i = threadIdx.x; i < K; i += THREADS) out[i] = keys[i] != 0 ? id_of(keys[i]) : -1;
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void merge() {
    __syncthreads();
    sort_descending<2 * HALF, THREADS>(keys);
    for (int i = threadIdx.x; i < HALF; i += THREADS) keys[HALF + i] = 0;
    waiting = 0;
    __syncthreads();
  }
};
