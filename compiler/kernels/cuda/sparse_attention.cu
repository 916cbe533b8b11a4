// sparse_attention: the window, then the selected entries in their order. Macros: those of attention.h, WINDOW,
// SELECTED, POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT.
#include "attention.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_attention(const act* q, const act* window_kv, const stored<STATE>* window, const stored<STATE>* compressed,
                     const int* page_table, const int* selected, const float* sink, const int* rows, act* out,
                     float scale) {
  const Row row = row_at(rows, blockIdx.x);
  const WindowKeys keys(window_kv, window, row, row[POSITION] - WINDOW + 1, row[POSITION]);
  const PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT> pool{page_table};
  const int* own = selected + static_cast<int64_t>(blockIdx.x) * SELECTED;
  attend(q, sink, out, keys.count + SELECTED, scale, [=](int k) -> Key {
    if (k < keys.count) return keys(k);
    const int j = own[k - keys.count];
    if (j < 0) return {nullptr, PLAIN};
    constexpr int FORM = PACKING == PLAIN ? PLAIN : FP4_KV;
    return {compressed + pool.entry(row[SLOT], j) * row_length(FORM, WIDTH), FORM};
  });
}
