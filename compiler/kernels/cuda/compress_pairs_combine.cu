// compress_pairs, second launch: the latents. Macros: OUT, WIDTH, RING. Every partner is read here, before the third
// launch replaces any: a slot's first row may need what its last rows replace. The latents were cleared: only rows that
// complete a pair are written, and no replayed ones, whose partner nobody keeps. One thread a channel.
#include "compress_pairs.h"
#include "element.h"

using out_type = stored<OUT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    compress_pairs_combine(const float* kv, const float* gate, const int* rows, const float* pair, out_type* latent,
                           int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const Row row = row_at(rows, static_cast<int>(at / WIDTH));
  if (row[POSITION] % 2 == 0 || row[FLAGS] & REPLAY) return;
  const int before = row[POSITION] - 1, d = at % WIDTH;
  const bool in_step = before >= row[BASE];
  const float kv0 = in_step ? kv[at - WIDTH] : pair[saved(row, before) + d];
  const float gate0 = in_step ? gate[at - WIDTH] : pair[saved(row, before) + WIDTH + d];
  const float top = gate0 > gate[at] ? gate0 : gate[at];
  const float e0 = expf(gate0 - top), e1 = expf(gate[at] - top);
  latent[at] = from_float<out_type>((e0 * kv0 + e1 * kv[at]) / (e0 + e1));
}
