// A method with its ports resolved and its buckets bound.
#pragma once

#include <memory>
#include <vector>

#include "bound_method.h"
#include "dsv41c/executor.h"

namespace dsv41c {

enum class InputSource { upload, keep_rows, logit_rows };

struct InputPort {
  InputSource source;
  int32_t* data;
  std::vector<int32_t> pad;  // one row
};

class LoadedMethod {
 public:
  LoadedMethod(const Method& method, int64_t max_rows, const Regions& regions, const KernelTable& kernels);

  const Method& method() const { return method_; }
  int64_t max_rows() const { return max_rows_; }
  const BoundMethod* least_bucket(int64_t rows) const;  // null when none holds them
  const BoundMethod* smallest() const { return buckets_.empty() ? nullptr : buckets_.front().get(); }
  int64_t rows_of(const dsv41c_step_inputs& inputs) const;
  // Copies `rows` input rows and fills up to `launched_rows` with pad rows.
  void write_inputs(const dsv41c_step_inputs& inputs, int64_t rows, int64_t launched_rows) const;

 private:
  const Method& method_;
  int64_t max_rows_;
  InputSource axis_;
  std::vector<InputPort> inputs_;
  std::vector<std::unique_ptr<BoundMethod>> buckets_;
};

}  // namespace dsv41c
