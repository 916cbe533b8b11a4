// A method without a bucket for its rows: bound for the call, in blocks of rows where the plan bounds those of one run.
#include <algorithm>
#include <chrono>

#include "executor.h"

namespace dsv41c {

// Each block enters the bridges where the one before it ended, so that the rows of the step lie in their order.
void Executor::run_eagerly(size_t index, const dsv41c_step_inputs& inputs, int64_t rows) {
  const LoadedMethod& method = *methods_[index];
  const int64_t blocks = (rows + method.run_rows() - 1) / method.run_rows();
  InputRows block;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    block.count = block.launched = std::min(method.run_rows(), rows - block.first);
    const auto bound = backend_->bind(method.method(), {block.count, block.first}, Binding::eager);
    poison();
    method.write_inputs(inputs, block);
    bound->run();
    block.first += block.count;
    block.staged = block.first;
    append_record(begin, {.method = static_cast<int32_t>(index),
                          .launched_rows = static_cast<int32_t>(block.count),
                          .rows = static_cast<int32_t>(block.count),
                          .reason = inputs.eager ? Reason::requested : Reason::above_largest_bucket,
                          .part = static_cast<int32_t>(i + 1),
                          .parts = static_cast<int32_t>(blocks)});
  }
  last_rows_[index] = rows;
}

}  // namespace dsv41c
