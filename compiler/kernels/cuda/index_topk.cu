// index_topk. Macros: those of index.h. One block a row; nothing is stored but the running best.
#include "index.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    index_topk(const act* q, const float* weights, const stored<STATE>* keys, const int* page_table, const int* rows,
               int* selected, float weight_scale) {
  DYNAMIC_SHARED(memory);
  const Scorer score(q, weights, keys, page_table, rows, weight_scale, memory + BestEntries::BYTES);
  BestEntries best(memory);
  const int n = visible(row_at(rows, blockIdx.x));
  for (int first = 0; first < n; first += THREADS) {
    const int j = first + threadIdx.x;
    best.offer(j < n ? ranked(score(j), j) : 0);
  }
  best.write_ascending(selected + static_cast<int64_t>(blockIdx.x) * TOPK);
}
