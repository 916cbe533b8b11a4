// What a launch may read and must write, as bytes of the stage; which of its rows are real.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checked_memory.h"
#include "regions.h"
#include "step_limits.h"

namespace dsv41c {

// One run of a method, for messages and the order of its launches.
struct CheckedRun {
  int64_t rows = 0;  // real ones; those above are pads
  int64_t step = 0;
  uint64_t seed = 0;

  std::string text() const;  // "step 3, order 0"
};

// Where a method's values lie in one run of so many rows.
struct CheckedPlace {
  const Method& method;
  const Regions& regions;
  const CheckedMemory& memory;
  const Limits& limits;
  RunRows rows;

  dsv41c_tensor tensor(int64_t value) const;
  const Value& root(int64_t value) const;   // what it looks into, or itself
  std::string owner(int64_t offset) const;  // of a byte of the stage, for messages
};

// The elements of a tensor, without the gaps of its strides; disjoint and ascending.
std::vector<ByteRange> ranges_of(const dsv41c_tensor& tensor, const CheckedMemory& memory);

// A tensor that a launch reads.
class CheckedInput {
 public:
  CheckedInput(const CheckedPlace& place, int64_t value)
      : value_(&place.method.values[static_cast<size_t>(value)]),
        ranges_(ranges_of(place.tensor(value), place.memory)) {}

  const std::string& name() const { return value_->name; }
  const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  const Value* value_;
  std::vector<ByteRange> ranges_;
};

// A tensor that a launch writes, or an output of the method.
class CheckedOutput {
 public:
  CheckedOutput(const CheckedPlace& place, const Argument& argument);

  const std::string& name() const { return value_->name; }
  const std::vector<ByteRange>& ranges() const { return ranges_; }
  const Storage& root() const { return root_->storage; }
  bool is_state() const { return root().kind == StorageKind::state; }
  bool is_result() const { return is_result_; }  // out: what it held before is gone
  // Whether pads keep what they hold: indices, which kernels follow. All other pads are undefined.
  bool keeps_pads() const { return keeps_pads_; }
  int64_t bytes() const;
  int64_t row_of(int64_t offset) const { return (offset - begin_) / row_bytes_; }
  bool is_live(int64_t row, int64_t rows) const;
  // Calls f(range, row) for the part of each row in each range.
  template <class F>
  void for_each_row(F f) const {
    for (const ByteRange& range : ranges_)
      for (int64_t at = range.begin; at < range.end;) {
        const int64_t row = row_of(at), end = std::min(range.end, begin_ + (row + 1) * row_bytes_);
        f(ByteRange{at, end}, row);
        at = end;
      }
  }

 private:
  void place_in_state(const CheckedPlace& place, const State& state);

  const Value* value_;
  const Value* root_;
  std::vector<ByteRange> ranges_;
  bool is_result_;
  bool keeps_pads_ = false;
  int64_t begin_ = 0;  // of row 0
  int64_t row_bytes_ = 1;
  const Expr* growing_ = nullptr;  // rows, by the method's symbol
  const std::string* symbol_ = nullptr;
  int64_t live_rows_;  // where rows do not grow
};

// The last row of a state tensor by slot or by page, where pad rows write.
bool has_trash(const State& state, const Limits& limits);
bool holds_indices(int32_t dtype);

}  // namespace dsv41c
