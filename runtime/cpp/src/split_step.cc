// A method whose rows are more than its largest bucket: several replays in the order of the rows.
#include <algorithm>
#include <chrono>

#include "executor.h"

namespace dsv41c {

void Executor::run_split(size_t index, const dsv41c_step_inputs& inputs, const Split& split) {
  const LoadedMethod& method = *methods_[index];
  InputRows rows;
  for (int64_t part = 0; part < split.parts(); ++part) {
    const auto begin = std::chrono::steady_clock::now();
    rows.count = split.count(part);
    const BoundMethod& bound = *method.least_bucket(rows.count);
    rows.launched = bound.rows();
    poison();
    method.write_inputs(inputs, rows);
    bound.run();
    if (part + 1 < split.parts()) method.move_bridge_rows(rows.count, split.top + rows.first);
    rows.first += rows.count;
    rows.staged += rows.launched;
    append_record(begin, {.method = static_cast<int32_t>(index),
                          .launched_rows = static_cast<int32_t>(rows.launched),
                          .rows = static_cast<int32_t>(rows.count),
                          .reason = backend_->launches_singly() ? Reason::split_launched_singly : Reason::split,
                          .part = static_cast<int32_t>(part + 1),
                          .parts = static_cast<int32_t>(split.parts())});
  }
  last_rows_[index] = split.rows;
}

// The rows of logits keep their order; each is read where its row lies now.
const int32_t* Executor::moved_logit_rows(const dsv41c_step_inputs& inputs, const Split& split) {
  std::transform(inputs.logit_rows, inputs.logit_rows + inputs.num_logit_rows, moved_logit_rows_.begin(),
                 [&](int32_t row) { return static_cast<int32_t>(split.place(row)); });
  return moved_logit_rows_.data();
}

}  // namespace dsv41c
