// greedy_token. Macros: WIDTH. One block a row; NaN never wins, the lowest index wins among equals.
#include "row_view.h"

constexpr int THREADS = 512;
constexpr int NONE = 0x7fffffff;

struct Best {
  float value;
  int index;
};
// A comparison with NaN is false, so NaN never replaces anything.
DEVICE bool beats(float value, int index, const Best& than) {
  return value > than.value || (value == than.value && index < than.index);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    greedy_token(const float* logits, const int* rows, int* slot_token, int* token) {
  __shared__ float values[THREADS];
  __shared__ int indices[THREADS];
  const int i = blockIdx.x, t = threadIdx.x;
  const float* x = logits + static_cast<int64_t>(i) * WIDTH;
  Best best{-__uint_as_float(0x7f800000u), NONE};
  for (int j = t; j < WIDTH; j += THREADS)
    if (beats(x[j], j, best)) best = {x[j], j};
  values[t] = best.value;
  indices[t] = best.index;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (t < half && beats(values[t + half], indices[t + half], {values[t], indices[t]}))
      values[t] = values[t + half], indices[t] = indices[t + half];
    __syncthreads();
  }
  if (t != 0) return;
  const int chosen = indices[0] == NONE ? 0 : indices[0];
  const Row row = row_at(rows, i);
  token[i] = chosen;
  if (!row.pad() && row.among_last(1, i)) slot_token[row[SLOT]] = chosen;
}
