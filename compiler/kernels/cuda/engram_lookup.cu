// engram_lookup. Macros: OUT, LAYERS, LAYER, PICKS, TABLE_ROWS, WIDTH, SCALES (groups of a table row). Foreign ids give
// zeros.
#include "element.h"

using out_type = stored<OUT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    engram_lookup(const int* ids, const uint8_t* table, const uint8_t* scale, out_type* out, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * (PICKS * WIDTH)) return;
  const int64_t i = at / (PICKS * WIDTH);
  const int pick = static_cast<int>(at % (PICKS * WIDTH)) / WIDTH, d = at % WIDTH;
  const int64_t id = ids[(i * LAYERS + LAYER) * PICKS + pick];
  const bool known = id >= 0 && id < TABLE_ROWS;
  const float v =
      known ? __fmul_rn(e4m3_to_float(table[id * WIDTH + d]), e8m0_to_float(scale[id * SCALES + d / (WIDTH / SCALES)]))
            : 0.0f;
  out[at] = from_float<out_type>(v);
}
