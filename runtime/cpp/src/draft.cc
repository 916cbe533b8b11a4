// Speculation: drafts behind the newest tokens of slots, and forgetting the ones that were wrong.
#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "executor.h"

namespace dsv41c {

void Executor::draft(const int32_t* upload, int64_t num_groups, bool eager) {
  const auto flow = std::ranges::find(flows_, true, &LoadedFlow::is_draft);
  if (flow == flows_.end())
    throw Error({.code = plan_format::E0801,
                 .subject = "draft",
                 .found = "a plan without drafts",
                 .needed = "a method draft",
                 .action = "compile the checkpoint with --draft-len"});
  upload_check_.check_draft(upload, num_groups);
  const size_t index = flow->methods.front();
  if (num_groups > methods_[index]->max_rows())
    throw Error({.code = plan_format::E0801,
                 .subject = "draft upload",
                 .found = std::to_string(num_groups) + " rows",
                 .needed = "at most " + std::to_string(methods_[index]->max_rows()),
                 .action = "draft for fewer slots at a time; no state was changed"});
  const Entered entered(*backend_);
  try {
    last_flow_ = &*flow;
    last_rows_[index] = 0;
    backend_->begin_step();
    dsv41c_step_inputs inputs{};
    inputs.upload = upload;
    inputs.num_rows = num_groups;
    inputs.eager = eager;
    run_method(index, inputs, num_groups);
  } catch (...) {
    backend_->drain();  // inputs may be on their way still
    throw;
  }
}

// One copy of the positions between the first and the last of the slots: what lies behind a position is read by none.
void Executor::rollback(const int32_t* slots, const int32_t* lengths, int64_t count) {
  const int64_t state = state_index("slot_position");
  upload_check_.check_rollback(slots, lengths, count);
  const int64_t first = *std::min_element(slots, slots + count), last = *std::max_element(slots, slots + count);
  const Entered entered(*backend_);
  std::copy(upload_check_.limits().slot_position + first, upload_check_.limits().slot_position + last + 1,
            positions_.begin());
  for (int64_t i = 0; i < count; ++i) positions_[static_cast<size_t>(slots[i] - first)] = lengths[i];
  backend_->write_state_part(state, first, last - first + 1, positions_.data());
  upload_check_.rolled_back(slots, lengths, count);
}

}  // namespace dsv41c
