// index_topk_blocks. Macros: those of index.h, BLOCK_ENTRIES (divides the block's threads), TOPK_BLOCKS.
#include "index.h"

constexpr int TILE_BLOCKS = THREADS / BLOCK_ENTRIES;
using BestBlocks = BestOf<TOPK_BLOCKS, TILE_BLOCKS, THREADS>;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    index_topk_blocks(const act* q, const float* weights, const stored<STATE>* keys, const int* page_table,
                      const int* rows, int* selected, int* blocks, float weight_scale) {
  DYNAMIC_SHARED(memory);
  __shared__ float tile[THREADS];
  const Scorer score(q, weights, keys, page_table, rows, weight_scale, memory + BestEntries::BYTES + BestBlocks::BYTES);
  BestEntries best(memory);
  BestBlocks best_blocks(memory + BestEntries::BYTES);
  const int n = visible(row_at(rows, blockIdx.x)), t = threadIdx.x, newest = (n - 1) / BLOCK_ENTRIES;
  for (int first = 0; first < n; first += THREADS) {
    const int j = first + t;
    const float own = j < n ? score(j) : 0.0f;
    tile[t] = own == own ? own : -__uint_as_float(0x7f800000u);
    best.offer(j < n ? ranked(own, j) : 0);
    __syncthreads();
    const int block = first / BLOCK_ENTRIES + t;
    uint64_t key = 0;
    if (t < TILE_BLOCKS && block <= newest) {
      float top = tile[t * BLOCK_ENTRIES];
      for (int e = 1; e < BLOCK_ENTRIES && block * BLOCK_ENTRIES + e < n; ++e)
        top = fmaxf(top, tile[t * BLOCK_ENTRIES + e]);
      key = ranked(block == newest ? __uint_as_float(0x7f800000u) : top, block);  // the newest always takes part
    }
    best_blocks.offer(key);
    __syncthreads();
  }
  best.write_ascending(selected + static_cast<int64_t>(blockIdx.x) * TOPK);
  best_blocks.write_ascending(blocks + static_cast<int64_t>(blockIdx.x) * TOPK_BLOCKS);
}
