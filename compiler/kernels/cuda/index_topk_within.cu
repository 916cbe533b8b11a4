// index_topk_within: only entries of the listed blocks take part. Macros: those of index.h, BLOCK_ENTRIES, NUM_BLOCKS.
#include "index.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    index_topk_within(const act* q, const float* weights, const stored<STATE>* keys, const int* page_table,
                      const int* rows, const int* blocks, int* selected, float weight_scale) {
  DYNAMIC_SHARED(memory);
  const Scorer score(q, weights, keys, page_table, rows, weight_scale, memory + BestEntries::BYTES);
  BestEntries best(memory);
  const int n = visible(row_at(rows, blockIdx.x));
  const int* own = blocks + static_cast<int64_t>(blockIdx.x) * NUM_BLOCKS;
  for (int first = 0; first < NUM_BLOCKS * BLOCK_ENTRIES; first += THREADS) {
    const int c = first + threadIdx.x, block = c < NUM_BLOCKS * BLOCK_ENTRIES ? own[c / BLOCK_ENTRIES] : -1;
    const int j = block < 0 || block > (n - 1) / BLOCK_ENTRIES ? n : block * BLOCK_ENTRIES + c % BLOCK_ENTRIES;
    best.offer(j < n ? ranked(score(j), j) : 0);
  }
  best.write_ascending(selected + static_cast<int64_t>(blockIdx.x) * TOPK);
}
