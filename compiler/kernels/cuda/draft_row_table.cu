// draft_row_table. Macros: BLOCK, NOISE_TOKEN. One thread a row: the newest token of a slot, and noise behind it.
#include "element.h"
#include "row_view.h"

enum UploadColumn { U_SLOT, U_OFFSET, U_TOKEN, U_FLAGS, U_PAGE, UPLOAD_COLUMNS };

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    draft_row_table(const int* upload, const int* slot_token, const int* slot_position, int* table, int count) {
  const int64_t at = own_element();
  if (at >= count) return;
  const int group = at / BLOCK, i = at % BLOCK;
  const int* given = upload + static_cast<int64_t>(group) * UPLOAD_COLUMNS;
  const int slot = given[U_SLOT], base = slot_position[slot];
  int* out = table + at * ROW_COLUMNS;
  out[SLOT] = slot;
  out[POSITION] = base + i;
  out[BASE] = base;
  out[FIRST_ROW] = group * BLOCK;
  out[COUNT] = BLOCK;
  out[TOKEN] = i > 0 ? NOISE_TOKEN : given[U_TOKEN] >= 0 ? given[U_TOKEN] : slot_token[slot];
  out[FLOOR] = 0;
  out[FLAGS] = given[U_FLAGS];
}
