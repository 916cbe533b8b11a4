// greedy_token. Macros: WIDTH. One block a row.
#include "greedy.h"
#include "row_view.h"

extern "C" __global__ void __launch_bounds__(GREEDY_THREADS, 1)
    greedy_token(const float* logits, const int* rows, int* slot_token, int* token) {
  const int i = blockIdx.x;
  const int chosen = greedy_index(logits + static_cast<int64_t>(i) * WIDTH, WIDTH);
  if (threadIdx.x != 0) return;
  const Row row = row_at(rows, i);
  token[i] = chosen;
  if (!row.pad() && row.among_last(1, i)) slot_token[row[SLOT]] = chosen;
}
