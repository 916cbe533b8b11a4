// window_floor. One block: a row's floor is that of the last flagged row of its slot before it, or the state's.
#include "group_scan.h"

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 1)
    window_floor(const int* rows, int* floors, int* table, int count) {
  const auto starts = [=](int i) {
    const Row row = row_at(rows, i);
    return i == row[FIRST_ROW] || row[FLAGS] & (PAD | FLOOR_HERE);
  };
  visit_groups(count, starts, [=](int i, int first, int) {
    const Row row = row_at(rows, i), head = row_at(rows, first);
    int* out = table + static_cast<int64_t>(i) * ROW_COLUMNS;
    for (int c = 0; c < ROW_COLUMNS; ++c) out[c] = row.columns[c];
    if (row.pad()) return;
    out[FLOOR] = head[POSITION] == 0 || head[FLAGS] & FLOOR_HERE ? head[POSITION] : floors[row[SLOT]];
  });
  __syncthreads();  // every row has read its slot's floor
  const Range own = own_rows(count);
  for (int i = own.begin; i < own.end; ++i) {
    const Row row = row_at(table, i);
    if (!row.pad() && row.among_last(1, i)) floors[row[SLOT]] = row[FLOOR];
  }
}
