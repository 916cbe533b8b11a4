// embed_token. Macros: WEIGHT, VOCABULARY, WIDTH. Ids outside the table give zeros.
#include "element.h"

using weight_type = stored<WEIGHT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    embed_token(const int* token, const weight_type* weight, weight_type* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int id = token[at / WIDTH];
  const bool inside = id >= 0 && id < VOCABULARY;
  out[at] = inside ? weight[static_cast<int64_t>(id) * WIDTH + at % WIDTH] : from_float<weight_type>(0.0f);
}
