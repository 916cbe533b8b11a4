// markov_logits. Macros: WIDTH, BLOCK, INDEX. Logits of one position of each block, corrected.
#include "element.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    markov_logits(const float* base, const float* correction, float* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  out[at] = __fadd_rn(base[(at / WIDTH * BLOCK + INDEX) * WIDTH + at % WIDTH], correction[at]);
}
