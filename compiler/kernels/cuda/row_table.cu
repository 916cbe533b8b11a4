// row_table. Macros: PAGE_TOKENS, PAGES_PER_SLOT. One block: groups are few and their search is a scan.
#include "group_scan.h"

enum UploadColumn { U_SLOT, U_OFFSET, U_TOKEN, U_FLAGS, U_PAGE, UPLOAD_COLUMNS };

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 1)
    row_table(const int* upload, const int* slot_token, int* slot_position, int* page_table, int* replay_floor,
              int* table, int count) {
  const auto starts = [=](int i) {
    const int* u = upload + static_cast<int64_t>(i) * UPLOAD_COLUMNS;
    return i == 0 || u[U_OFFSET] == 0 || (u[U_FLAGS] & PAD) || u[U_SLOT] != u[U_SLOT - UPLOAD_COLUMNS];
  };
  visit_groups(count, starts, [=](int i, int first, int end) {
    const int *u = upload + static_cast<int64_t>(i) * UPLOAD_COLUMNS,
              *head = upload + static_cast<int64_t>(first) * UPLOAD_COLUMNS;
    const int base = head[U_FLAGS] & START ? 0 : slot_position[head[U_SLOT]];
    int* out = table + static_cast<int64_t>(i) * ROW_COLUMNS;
    out[SLOT] = u[U_SLOT];
    out[POSITION] = base + (i - first);
    out[BASE] = base;
    out[FIRST_ROW] = first;
    out[COUNT] = end - first;
    out[TOKEN] = u[U_TOKEN] >= 0 ? u[U_TOKEN] : slot_token[u[U_SLOT]];
    out[FLOOR] = base == 0 || head[U_FLAGS] & HIT ? base : replay_floor[head[U_SLOT]];
    out[FLAGS] = u[U_FLAGS];
  });
  __syncthreads();  // every group has read its slot's position and floor
  const Range own = own_rows(count);
  for (int i = own.begin; i < own.end; ++i) {
    const Row row = row_at(table, i);
    if (row.pad()) continue;
    if (row[FIRST_ROW] == i) {
      slot_position[row[SLOT]] = row[BASE] + row[COUNT];
      replay_floor[row[SLOT]] = row[FLOOR];
    }
    const int page = upload[static_cast<int64_t>(i) * UPLOAD_COLUMNS + U_PAGE], logical = row[POSITION] / PAGE_TOKENS;
    if (page >= 0 && logical < PAGES_PER_SLOT)
      page_table[static_cast<int64_t>(row[SLOT]) * PAGES_PER_SLOT + logical] = page;
  }
}
