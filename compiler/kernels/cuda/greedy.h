// The greedy token of one row, by one block: NaN never wins, the lowest index wins among equals.
#pragma once

#include "numbers.h"

constexpr int GREEDY_THREADS = 512;

struct Best {
  float value;
  int index;
};
// A comparison with NaN is false, so NaN never replaces anything.
DEVICE bool beats(float value, int index, const Best& than) {
  return value > than.value || (value == than.value && index < than.index);
}

// All threads must call it; thread 0 gets the index.
DEVICE int greedy_index(const float* x, int width) {
  constexpr int NONE = 0x7fffffff;
  __shared__ float values[GREEDY_THREADS];
  __shared__ int indices[GREEDY_THREADS];
  const int t = threadIdx.x;
  Best best{-__uint_as_float(0x7f800000u), NONE};
  for (int j = t; j < width; j += GREEDY_THREADS)
    if (beats(x[j], j, best)) best = {x[j], j};
  values[t] = best.value;
  indices[t] = best.index;
  __syncthreads();
  for (int half = GREEDY_THREADS / 2; half > 0; half /= 2) {
    if (t < half && beats(values[t + half], indices[t + half], {values[t], indices[t]}))
      values[t] = values[t + half], indices[t] = indices[t + half];
    __syncthreads();
  }
  return indices[0] == NONE ? 0 : indices[0];
}
