// Reading the row table, the page table and the paged pools from a kernel.
#pragma once

#include <limits>

#include "packed.h"

namespace dsv41c::cpu {

// One row of the row table (columns as in kernel.h). A plan may hand over any int32 [T,8] as one, so a kernel uses no
// column as an index before `stands_at` or `slot` has seen it.
struct Row {
  const int32_t* columns;
  int64_t operator[](RowColumn c) const { return columns[c]; }
  // Whether the row, at `index` of a table of `rows`, and those of its slot around it lie as row_table writes them.
  bool stands_at(int64_t index, int64_t rows) const {
    const Row& r = *this;
    return r[BASE] >= 0 && r[FIRST_ROW] >= 0 && r[FIRST_ROW] <= index && r[COUNT] > index - r[FIRST_ROW] &&
           r[COUNT] <= rows - r[FIRST_ROW] && r[POSITION] - r[BASE] == index - r[FIRST_ROW];
  }
  // The slot, as index of the first dimension of `state`; what is none of its slots is the last one, the trash slot.
  int64_t slot(const dsv41c_tensor& state) const { return slot_in(state, columns[SLOT]); }
  static int64_t slot_in(const dsv41c_tensor& state, int64_t slot) {
    return slot >= 0 && slot < state.sizes[0] ? slot : state.sizes[0] - 1;
  }
  bool pad() const { return columns[FLAGS] & PAD; }
  bool image() const { return columns[FLAGS] & IMAGE; }
  bool replayed() const { return columns[FLAGS] & REPLAY; }
  // Whether the row stores no entry: a pad, or one whose entries a prefix hit holds already.
  bool stores_none() const { return columns[FLAGS] & (PAD | REPLAY); }
  // Whether the row is among the last n of its slot in this table, when it stands at `index`.
  bool among_last(int64_t n, int64_t index) const { return index >= int64_t{columns[FIRST_ROW]} + columns[COUNT] - n; }
};

inline Row row_at(const dsv41c_tensor& rows, int64_t index) {
  return Row{data<int32_t>(rows) + index * NUM_ROW_COLUMNS};
}
inline void require_rows(const dsv41c_tensor& rows, int64_t count) {
  require(rows, "rows", {DSV41C_INT32}, 2);
  require_size(rows, "rows", 0, count);
  require_size(rows, "rows", 1, NUM_ROW_COLUMNS);
}

// A pool [P+1, entries per page, width] seen through page_table [S+1, pages]; page P is the trash page.
struct PagedPool {
  const dsv41c_tensor& pool;
  const dsv41c_tensor& page_table;

  int64_t trash() const { return pool.sizes[0] - 1; }
  int64_t page_rows() const { return pool.sizes[1]; }
  int64_t capacity() const { return page_table.sizes[1] * page_rows(); }
  // Page of entry j of the slot. Pads and unmapped positions lead to the trash page, never outside.
  int64_t page(int64_t slot, int64_t j) const {
    const int64_t logical = j / page_rows();
    if (j < 0 || logical >= page_table.sizes[1]) return trash();
    const int64_t page = data<int32_t>(page_table)[Row::slot_in(page_table, slot) * page_table.sizes[1] + logical];
    return page < 0 || page > trash() ? trash() : page;
  }
  // Index of entry j among all rows of the pool.
  int64_t index(int64_t slot, int64_t j) const { return page(slot, j) * page_rows() + j % page_rows(); }
  // T: the element of the pool, uint8_t where it is packed.
  template <class T>
  T* entry(int64_t slot, int64_t j) const {
    return data<T>(pool) + index(slot, j) * pool.sizes[2];
  }
};

inline void require_pool(const dsv41c_tensor& pool, const char* name, const dsv41c_tensor& page_table, int32_t dtype,
                         int64_t width) {
  require_state(pool, name, dtype, width);
  require(page_table, "page_table", {DSV41C_INT32}, 2);
  if (page_table.sizes[1] > std::numeric_limits<int32_t>::max() / pool.sizes[1])
    throw std::invalid_argument(std::string("pool ") + name + " holds more positions than int32");
}

}  // namespace dsv41c::cpu
