// sparse_attention: the window, then the selected entries in their order. Macros: those of attention.h, WINDOW,
// SELECTED, POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT.
#include "attention.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_attention(const act* q, const act* window_kv, const act* window, const act* compressed,
                     const int* page_table, const int* selected, const float* sink, const int* rows, act* out,
                     float scale) {
  const Row row = row_at(rows, blockIdx.x);
  const WindowKeys keys(window_kv, window, row, row[POSITION] - WINDOW + 1, row[POSITION]);
  const PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT> pool{page_table};
  const int* own = selected + static_cast<int64_t>(blockIdx.x) * SELECTED;
  attend(q, sink, out, keys.count + SELECTED, scale, [=](int k) -> const act* {
    if (k < keys.count) return keys(k);
    const int j = own[k - keys.count];
    return j < 0 ? nullptr : compressed + pool.entry(row[SLOT], j) * WIDTH;
  });
}
