// A method with its ports resolved and its buckets bound.
#pragma once

#include <memory>
#include <vector>

#include "backend.h"

namespace dsv41c {

// A bridge that a method writes, row behind row.
struct OutgoingBridge {
  uint8_t* data;
  int64_t row_bytes;
};

class LoadedMethod {
 public:
  // Its inputs take their staging from `staging_bytes` on.
  LoadedMethod(const Method& method, int64_t max_rows, Backend& backend, int64_t* staging_bytes);
  void bind_buckets();

  const Method& method() const { return method_; }
  int64_t max_rows() const { return max_rows_; }
  const BoundMethod* least_bucket(int64_t rows) const;  // null when none holds them
  const BoundMethod* smallest() const { return buckets_.empty() ? nullptr : buckets_.front().get(); }
  int64_t rows_of(const dsv41c_step_inputs& inputs) const;
  const std::vector<std::unique_ptr<BoundMethod>>& buckets() const { return buckets_; }
  bool makes_drafts() const { return method_.axis == "groups"; }
  bool takes_logit_rows() const { return axis_ == InputSource::logit_rows; }
  int64_t largest_bucket() const { return method_.buckets.empty() ? 0 : method_.buckets.back(); }
  // Whether so many rows take several replays.
  bool splits(int64_t rows) const { return method_.ladder.splits() && rows > largest_bucket(); }
  // Sends input rows to the device, and pad rows behind them.
  void write_inputs(const dsv41c_step_inputs& inputs, const InputRows& rows) const;
  // Copies the first `count` rows of every bridge that the method writes to the rows from `to` on.
  void move_bridge_rows(int64_t count, int64_t to) const;

 private:
  const Method& method_;
  int64_t max_rows_;
  Backend& backend_;
  InputSource axis_;
  std::vector<InputPort> inputs_;
  std::vector<OutgoingBridge> outgoing_;  // of a method that may be split
  std::vector<std::unique_ptr<BoundMethod>> buckets_;
};

}  // namespace dsv41c
