// The row table and the paged pools as the kernels see them (compiler/ops/rows.py).
#pragma once

#include "numbers.h"

enum RowColumn { SLOT, POSITION, BASE, FIRST_ROW, COUNT, TOKEN, FLOOR, FLAGS, ROW_COLUMNS };
enum RowFlag { START = 1, IMAGE = 2, PAD = 4, FLOOR_HERE = 8, REPLAY = 16, HIT = 32 };

struct Row {
  const int* columns;
  __device__ __forceinline__ int operator[](RowColumn c) const { return columns[c]; }
  __device__ __forceinline__ bool pad() const { return columns[FLAGS] & PAD; }
  __device__ __forceinline__ bool image() const { return columns[FLAGS] & IMAGE; }
  // Whether the row stores no entry: a pad, or one whose entries a prefix hit holds already.
  __device__ __forceinline__ bool stores_none() const { return columns[FLAGS] & (PAD | REPLAY); }
  // Whether the row at `index` is among the last n of its slot in this table.
  __device__ __forceinline__ bool among_last(int n, int index) const {
    return index >= columns[FIRST_ROW] + columns[COUNT] - n;
  }
};

DEVICE Row row_at(const int* rows, int index) { return Row{rows + static_cast<int64_t>(index) * ROW_COLUMNS}; }

// A pool [pages, page rows, width] seen through page_table [slots, pages per slot]; the last page is the trash page.
template <int NUM_PAGES, int ROWS_OF_PAGE, int SLOT_PAGES>
struct PagedPool {
  static constexpr int TRASH = NUM_PAGES - 1;
  static constexpr int CAPACITY = SLOT_PAGES * ROWS_OF_PAGE;
  const int* page_table;

  // Page of entry j of the slot. Pads and unmapped positions lead to the trash page, never outside.
  __device__ __forceinline__ int page(int slot, int j) const {
    if (j < 0 || j >= CAPACITY) return TRASH;
    const int page = page_table[static_cast<int64_t>(slot) * SLOT_PAGES + j / ROWS_OF_PAGE];
    return page < 0 || page > TRASH ? TRASH : page;
  }
  // Index of entry j among all rows of the pool.
  __device__ __forceinline__ int64_t entry(int slot, int j) const {
    return static_cast<int64_t>(page(slot, j)) * ROWS_OF_PAGE + (j < 0 ? 0 : j % ROWS_OF_PAGE);
  }
};
