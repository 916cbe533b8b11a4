// draft_attention: the ring before the group and every row of the group. Macros: those of attention.h, WINDOW.
#include "attention.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    draft_attention(const act* q, const act* window_kv, const stored<STATE>* window, const float* sink, const int* rows,
                    act* out, float scale) {
  const Row row = row_at(rows, blockIdx.x);
  const WindowKeys keys(window_kv, window, row, row[BASE] - WINDOW, row[BASE] + row[COUNT] - 1);
  attend(q, sink, out, keys.count, scale, keys);
}
