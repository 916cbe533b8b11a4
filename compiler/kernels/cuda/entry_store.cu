// entry_store. Macros: ACT, WIDTH, RATIO, POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT. One thread an element; the trash page
// is never written.
#include "element.h"
#include "row_view.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    entry_store(const act* entry, const int* rows, const int* page_table, act* pool, int count) {
  const int64_t at = own_element();
  if (at >= static_cast<int64_t>(count) * WIDTH) return;
  const Row row = row_at(rows, static_cast<int>(at / WIDTH));
  const PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT> pages{page_table};
  const int j = row[POSITION] / RATIO;
  if (row.stores_none() || (row[POSITION] + 1) % RATIO != 0 || pages.page(row[SLOT], j) == pages.TRASH) return;
  pool[pages.entry(row[SLOT], j) * WIDTH + at % WIDTH] = entry[at];
}
