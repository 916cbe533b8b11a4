// embed_expand. Macros: ACT, WEIGHT, VOCABULARY, WIDTH, STREAMS. Ids outside the table give zeros.
#include "row_view.h"

extern "C" __global__ void embed_expand(const int* rows, const WEIGHT* weight, ACT* streams, float* alpha, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int64_t i = at / WIDTH;
  const int d = at % WIDTH, token = row_at(rows, i)[TOKEN];
  const bool inside = token >= 0 && token < VOCABULARY;
  const ACT v = from_float<ACT>(inside ? to_float(weight[static_cast<int64_t>(token) * WIDTH + d]) : 0.0f);
  for (int s = 0; s < STREAMS; ++s) streams[(i * STREAMS + s) * WIDTH + d] = v;
  for (int s = d; s < STREAMS; s += WIDTH) alpha[i * STREAMS + s] = s == 0 ? 1.0f : 0.0f;
}
