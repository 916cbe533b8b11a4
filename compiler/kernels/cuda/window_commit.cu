// window_commit. Macros: ACT, WIDTH, RING. One thread an element; pads and rows that a later one replaces write
// nothing.
#include "element.h"
#include "row_view.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    window_commit(const act* window_kv, const int* rows, act* window, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const int i = static_cast<int>(at / WIDTH);
  const Row row = row_at(rows, i);
  if (row.pad() || !row.among_last(RING, i)) return;
  window[(static_cast<int64_t>(row[SLOT]) * RING + row[POSITION] % RING) * WIDTH + at % WIDTH] = window_kv[at];
}
