// embed_expand. Macros: ACT, WEIGHT, VOCABULARY, WIDTH, STREAMS. Ids outside the table give zeros.
#include "element.h"
#include "row_view.h"

using act = stored<ACT>;
using weight_type = stored<WEIGHT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    embed_expand(const int* rows, const weight_type* weight, act* streams, float* alpha, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH;
  const int d = at % WIDTH, token = row_at(rows, i)[TOKEN];
  const bool inside = token >= 0 && token < VOCABULARY;
  const act v = from_float<act>(inside ? to_float(weight[static_cast<int64_t>(token) * WIDTH + d]) : 0.0f);
  for (int s = 0; s < STREAMS; ++s) streams[(i * STREAMS + s) * WIDTH + d] = v;
  for (int s = d; s < STREAMS; s += WIDTH) alpha[i * STREAMS + s] = s == 0 ? 1.0f : 0.0f;
}
