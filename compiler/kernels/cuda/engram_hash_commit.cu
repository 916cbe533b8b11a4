// engram_hash, second launch: the last tokens of every slot go into its ring. Macros: RING. One thread a row.
#include "element.h"
#include "engram_token.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    engram_hash_commit(const int* rows, int* token_ring, int count) {
  const int i = static_cast<int>(own_element());
  if (i >= count) return;
  const Row row = row_at(rows, i);
  if (row.pad() || !row.among_last(RING, i)) return;
  token_ring[static_cast<int64_t>(row[SLOT]) * RING + row[POSITION] % RING] = raw_token(row);
}
