// confidence_input. Macros: HIDDEN, HIDDEN_WIDTH, BIGRAM, BIGRAM_WIDTH, BLOCK, INDEX. One position of each block beside
// the embedding of the token before it.
#include "element.h"

constexpr int64_t JOINED = HIDDEN_WIDTH + BIGRAM_WIDTH;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    confidence_input(const stored<HIDDEN>* hidden, const stored<BIGRAM>* bigram, float* out, int count) {
  const int64_t at = own_element();
  if (at >= count * JOINED) return;
  const int64_t group = at / JOINED, d = at % JOINED;
  out[at] = d < HIDDEN_WIDTH ? to_float(hidden[(group * BLOCK + INDEX) * HIDDEN_WIDTH + d])
                             : to_float(bigram[group * BIGRAM_WIDTH + d - HIDDEN_WIDTH]);
}
