// window_commit. Macros: ACT, WIDTH, RING, PACKING. One thread an element; pads and rows that a later one replaces
// write nothing.
#include "packed.h"
#include "row_view.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    window_commit(const act* window_kv, const int* rows, stored<STATE>* window, int count) {
  const int64_t at = min(own_element(), static_cast<int64_t>(count) * WIDTH - 1);  // idle lanes stay for the shuffles
  const int i = static_cast<int>(at / WIDTH);
  const Row row = row_at(rows, i);
  const bool stores = at == own_element() && !row.pad() && row.among_last(RING, i);
  store_number<PACKING, WIDTH>(
      window + (static_cast<int64_t>(row[SLOT]) * RING + row[POSITION] % RING) * row_length(PACKING, WIDTH),
      static_cast<int>(at % WIDTH), window_kv[at], stores);
}
