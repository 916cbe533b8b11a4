// Where compress_pairs keeps a position. Macros: WIDTH, RING.
#pragma once

#include "row_view.h"

// [kv, gate] of a position in the slot's ring.
DEVICE int64_t saved(Row row, int position) {
  return (static_cast<int64_t>(row[SLOT]) * RING + position % RING) * 2 * WIDTH;
}
