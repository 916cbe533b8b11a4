// engram_hash, first launch: the ids. Macros: LAYERS, NGRAM, HEADS, VOCABULARY, RING, PAD_TOKEN. Every look-back is
// read here, before the second launch changes the ring. One thread an id.
#include "element.h"
#include "engram_token.h"

constexpr int COLUMNS = (NGRAM - 1) * HEADS;

DEVICE int token_at(const int* rows, const int* ring, Row row, int position) {
  if (position < 0) return -1;
  if (position >= row[BASE]) return raw_token(row_at(rows, row[FIRST_ROW] + position - row[BASE]));
  return ring[static_cast<int64_t>(row[SLOT]) * RING + position % RING];
}

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    engram_hash(const int* rows, const int* token_map, const int64_t* multipliers, const int64_t* moduli,
                const int64_t* offsets, const int* token_ring, int* ids, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * (LAYERS * COLUMNS)) return;
  const Row row = row_at(rows, static_cast<int>(at / (LAYERS * COLUMNS)));
  const int own = static_cast<int>(at % (LAYERS * COLUMNS)), layer = own / COLUMNS, last = own % COLUMNS / HEADS + 1;
  // An image row, the start of the sequence or a foreign id hides itself and everything older behind the pad token.
  bool open = true;
  int64_t value = 0;
  for (int k = 0; k <= last; ++k) {
    const int raw = open ? token_at(rows, token_ring, row, row[POSITION] - k) : -1;
    open = raw >= 0 && raw < VOCABULARY;
    value ^= static_cast<int64_t>(token_map[open ? raw : PAD_TOKEN]) * multipliers[layer * NGRAM + k];
  }
  ids[at] = static_cast<int>(value % moduli[own] + offsets[own]);
}
