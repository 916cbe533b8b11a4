// One step: choose a flow, then run its methods from frozen launches, or bound for the call.
#include <algorithm>
#include <chrono>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "executor.h"

namespace dsv41c {
namespace {

bool is_identity(const int32_t* list, int64_t count, int64_t rows) {
  if (count != rows) return false;
  for (int64_t i = 0; i < count; ++i)
    if (list[i] != i) return false;
  return true;
}

}  // namespace

bool Executor::holds(const LoadedFlow& flow, const dsv41c_step_inputs& inputs) const {
  if (flow.is_draft) return false;
  if (flow.needs_all_rows_output && !(is_identity(inputs.keep_rows, inputs.num_keep, inputs.num_rows) &&
                                      is_identity(inputs.logit_rows, inputs.num_logit_rows, inputs.num_rows)))
    return false;
  return std::ranges::all_of(
      flow.methods, [&](size_t index) { return methods_[index]->rows_of(inputs) <= methods_[index]->max_rows(); });
}

const Executor::LoadedFlow& Executor::choose_flow(const dsv41c_step_inputs& inputs) const {
  for (const LoadedFlow& flow : flows_)
    if (holds(flow, inputs)) return flow;
  std::string bounds;
  for (const LoadedFlow& flow : flows_)
    for (size_t index : flow.is_draft ? std::vector<size_t>() : flow.methods)
      bounds += (bounds.empty() ? "" : ", ") + flow.flow->name + ": at most " +
                std::to_string(methods_[index]->max_rows()) + " " + plan().methods[index].axis;
  throw Error({.code = plan_format::E0801,
               .subject = "step",
               .found = std::to_string(inputs.num_rows) + " rows, " + std::to_string(inputs.num_keep) + " kept, " +
                        std::to_string(inputs.num_logit_rows) + " with logits",
               .needed = "a step that one flow holds (" + bounds + ")",
               .action = "split the step, or compile with a larger --max-num-batched-tokens; no state was changed"});
}

void Executor::step(const dsv41c_step_inputs& inputs) {
  upload_check_.check(inputs);
  const Entered entered(*backend_);
  struct Counted {  // also when it fails
    int64_t& step;
    ~Counted() { ++step; }
  } counted{step_};
  try {
    run_step(inputs);
  } catch (...) {
    backend_->drain();  // inputs of a failed step may be on their way still
    throw;
  }
}

void Executor::run_step(const dsv41c_step_inputs& inputs) {
  const LoadedFlow& flow = choose_flow(inputs);
  last_flow_ = &flow;
  for (size_t index : flow.methods) last_rows_[index] = 0;
  backend_->begin_step();
  dsv41c_step_inputs given = inputs;
  Split split;
  for (size_t index : flow.methods) {
    const LoadedMethod& method = *methods_[index];
    const int64_t rows = method.rows_of(inputs);
    if (rows == 0) continue;
    if (split.rows > 0 && method.takes_logit_rows()) given.logit_rows = moved_logit_rows(inputs, split);
    if (!inputs.eager && method.splits(rows))
      run_split(index, given, split = {rows, method.largest_bucket()});
    else
      run_method(index, given, rows);
  }
  backend_->step_enqueued(inputs, upload_check_.limits());
  upload_check_.enqueued(inputs);
}

void Executor::run_method(size_t index, const dsv41c_step_inputs& inputs, int64_t rows) {
  const auto begin = std::chrono::steady_clock::now();
  const LoadedMethod& method = *methods_[index];
  const BoundMethod* bound = inputs.eager ? nullptr : method.least_bucket(rows);
  if (!bound) return run_eagerly(index, inputs, rows);
  poison();
  method.write_inputs(inputs, {.count = rows, .launched = bound->rows()});
  bound->run();
  last_rows_[index] = rows;
  append_record(begin, {.method = static_cast<int32_t>(index),
                        .launched_rows = static_cast<int32_t>(bound->rows()),
                        .rows = static_cast<int32_t>(rows),
                        .reason = backend_->launches_singly() ? Reason::bucket_launched_singly : Reason::bucket});
}

void Executor::append_record(std::chrono::steady_clock::time_point begin, Record record) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  record.us = Microseconds(std::chrono::steady_clock::now() - begin).count();
  record.begin_us = Microseconds(begin - begin_).count();
  record.step = step_;
  records_.append(record);
}

// Debug: nothing in the arena may be read before a launch of the same method wrote it.
void Executor::poison() {
  if (poison_ != 0) backend_->poison(poison_);
}

dsv41c_tensor Executor::output(const std::string& name) {
  std::string known;
  if (last_flow_)
    for (size_t index : last_flow_->methods)
      for (const Port& port : plan().methods[index].outputs) {
        if (port.name != name) {
          known += (known.empty() ? "" : ", ") + port.name;
          continue;
        }
        // Views are made at the bound, where every size is at least 1; the rows of the step replace the first size.
        const Method& method = plan().methods[index];
        dsv41c_tensor t = backend_->regions().tensor(method, port.value, {methods_[index]->max_rows()});
        t.sizes[0] = last_rows_[index];
        const Entered entered(*backend_);
        t.data = backend_->read_output(name, t);
        return t;
      }
  throw Error({.code = plan_format::E0801,
               .subject = "output " + name,
               .found = last_flow_ ? "no such output of the last step" : "no step has run yet",
               .needed = last_flow_ ? "one of: " + known : "a step before its outputs are read",
               .action = "correct the name or run a step"});
}

}  // namespace dsv41c
