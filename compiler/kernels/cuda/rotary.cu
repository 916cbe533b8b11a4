// rotary. Macros: ACT, HEADS, WIDTH, TURNED (the last dims), MAX_POSITIONS, RATIO, INVERSE. One thread an element
// of those that turn; the others were copied.
#include "element.h"
#include "row_view.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    rotary(const act* x, const int* rows, const float* table, act* out, int count) {
  const int64_t turned = own_element();
  if (turned >= static_cast<int64_t>(count) * (HEADS * TURNED)) return;
  const int d = static_cast<int>(turned % TURNED);
  const int64_t at = turned / TURNED * WIDTH + (WIDTH - TURNED) + d;
  const int position = row_at(rows, static_cast<int>(turned / (HEADS * TURNED)))[POSITION] & -RATIO;
  const float* angle =
      table + (static_cast<int64_t>(min(max(position, 0), MAX_POSITIONS - 1)) * (TURNED / 2) + d / 2) * 2;
  const float own = to_float(x[at]), other = to_float(x[d % 2 ? at - 1 : at + 1]);
  const float by_cos = __fmul_rn(own, angle[0]), by_sin = __fmul_rn(other, angle[1]);
  const bool minus = (d % 2 == 0) != INVERSE;
  out[at] = from_float<act>(minus ? __fsub_rn(by_cos, by_sin) : __fadd_rn(by_cos, by_sin));
}
