// greedy_draft. Macros: WIDTH. One block a row.
#include "greedy.h"

extern "C" __global__ void __launch_bounds__(GREEDY_THREADS, 1) greedy_draft(const float* logits, int* token) {
  const int chosen = greedy_index(logits + static_cast<int64_t>(blockIdx.x) * WIDTH, WIDTH);
  if (threadIdx.x == 0) token[blockIdx.x] = chosen;
}
