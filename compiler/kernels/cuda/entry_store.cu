// entry_store. Macros: ACT, WIDTH, RATIO, POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT, PACKING. One thread an element; the
// trash page is never written.
#include "packed.h"
#include "row_view.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    entry_store(const act* entry, const int* rows, const int* page_table, stored<STATE>* pool, int count) {
  const int64_t at = min(own_element(), static_cast<int64_t>(count) * WIDTH - 1);  // idle lanes stay for the shuffles
  const Row row = row_at(rows, static_cast<int>(at / WIDTH));
  const PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT> pages{page_table};
  const int j = row[POSITION] / RATIO;
  const bool stores = at == own_element() && !row.stores_none() && (row[POSITION] + 1) % RATIO == 0 &&
                      pages.page(row[SLOT], j) != pages.TRASH;
  store_number<PACKING, WIDTH>(pool + pages.entry(row[SLOT], j) * row_length(PACKING, WIDTH),
                               static_cast<int>(at % WIDTH), entry[at], stores);
}
