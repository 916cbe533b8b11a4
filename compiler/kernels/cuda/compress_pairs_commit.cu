// compress_pairs, third launch: the last rows of every slot go into its ring. Macros: WIDTH, RING. One thread a
// channel.
#include "compress_pairs.h"
#include "element.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    compress_pairs_commit(const float* kv, const float* gate, const int* rows, float* pair, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int i = static_cast<int>(at / WIDTH), d = at % WIDTH;
  const Row row = row_at(rows, i);
  if (row.stores_none() || !row.among_last(RING, i)) return;
  pair[saved(row, row[POSITION]) + d] = kv[at];
  pair[saved(row, row[POSITION]) + WIDTH + d] = gate[at];
}
