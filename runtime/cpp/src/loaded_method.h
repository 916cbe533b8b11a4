// A method with its ports resolved and its buckets bound.
#pragma once

#include <memory>
#include <vector>

#include "backend.h"

namespace dsv41c {

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
  // Sends `rows` input rows to the device, and pad rows up to `launched_rows`.
  void write_inputs(const dsv41c_step_inputs& inputs, int64_t rows, int64_t launched_rows) const;

 private:
  const Method& method_;
  int64_t max_rows_;
  Backend& backend_;
  InputSource axis_;
  std::vector<InputPort> inputs_;
  std::vector<std::unique_ptr<BoundMethod>> buckets_;
};

}  // namespace dsv41c
