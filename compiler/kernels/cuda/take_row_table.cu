// take_row_table. Macros: NUM_SLOTS. One block: copies the kept rows, then regroups them.
#include "group_scan.h"

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 1)
    take_row_table(const int* rows, const int* index, int* table, int num_rows, int count) {
  const Range own = own_rows(count);
  for (int i = own.begin; i < own.end; ++i) {
    const int pad[ROW_COLUMNS] = {NUM_SLOTS, 0, 0, 0, 1, 0, 0, START | PAD};
    const bool keep = index[i] >= 0 && index[i] < num_rows;
    for (int c = 0; c < ROW_COLUMNS; ++c)
      table[static_cast<int64_t>(i) * ROW_COLUMNS + c] =
          keep ? rows[static_cast<int64_t>(index[i]) * ROW_COLUMNS + c] : pad[c];
  }
  __syncthreads();
  const auto starts = [=](int i) {
    return i == 0 || row_at(table, i).pad() || row_at(table, i - 1).pad() ||
           row_at(table, i)[SLOT] != row_at(table, i - 1)[SLOT];
  };
  visit_groups(count, starts, [=](int i, int first, int end) {
    int* out = table + static_cast<int64_t>(i) * ROW_COLUMNS;
    out[BASE] = row_at(table, first)[POSITION];
    out[FIRST_ROW] = first;
    out[COUNT] = end - first;
  });
}
