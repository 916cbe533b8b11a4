// Loading: memory, kernels, bound methods, a warm-up on pad rows.
#include "executor.h"

#include <algorithm>
#include <chrono>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "memory_budget.h"
#include "reservation.h"

namespace dsv41c {

Executor::Executor(const std::string& path, const LoadOptions& options)
    : artifact_(path, options.verify_full, options.weights,
                [&options](const Plan& plan) {
                  check_memory_budget(plan, options.memory_budget, !options.device.launch_singly);
                }),
      poison_(options.poison),
      check_(options.device.check_seed),
      kernels_(plan(), options.providers),
      backend_(make_backend(artifact_, kernels_, options.device)),
      upload_check_(limits_of(plan(), [this](const State& state) { return backend_->host_state(state); })),
      warm_ups_(plan().methods.size()),
      last_rows_(plan().methods.size(), 0),
      drained_{*backend_} {
  const Entered entered(*backend_);
  load_methods();
  load_flows();
  warm_up();
  backend_->finish_loading();
  report_ = render_report(*this, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
}

void Executor::load_methods() {
  int64_t staging_bytes = 0;
  for (const Method& method : plan().methods)
    methods_.push_back(std::make_unique<LoadedMethod>(method, symbol_of(plan(), method).hi, *backend_, &staging_bytes));
  backend_->reserve_inputs(staging_bytes);
  int64_t most = 0;
  for (const auto& method : methods_)
    if (method->takes_logit_rows()) most = std::max(most, method->max_rows());
  moved_logit_rows_.resize(static_cast<size_t>(most));
  positions_.resize(static_cast<size_t>(upload_check_.limits().slots.value_or(0)));
  for (const auto& method : methods_) method->bind_buckets();
  backend_->finish_binding();
}

void Executor::load_flows() {
  const auto& methods = plan().methods;
  for (const Flow& flow : plan().flows) {
    LoadedFlow loaded{&flow, {}, flow.requires_ == "all_rows_output", false};
    for (const std::string& name : flow.methods)
      loaded.methods.push_back(static_cast<size_t>(std::ranges::find(methods, name, &Method::name) - methods.begin()));
    loaded.is_draft = std::ranges::any_of(loaded.methods, [&](size_t i) { return methods_[i]->makes_drafts(); });
    flows_.push_back(std::move(loaded));
  }
}

// Every method runs once on pad rows, in the order of the flows, so that bridges are written before they are read.
// It shows what ATen allocates, and the providers check their outputs on a first launch.
void Executor::warm_up() {
  for (const LoadedFlow& flow : flows_)
    for (size_t index : flow.methods)
      if (warm_ups_[index].rows == 0) warm_ups_[index] = warm_up(*methods_[index]);
  backend_->fill_state();
  backend_->synchronize();
}

WarmUp Executor::warm_up(const LoadedMethod& method) {
  const BoundMethod* bucket = method.smallest();
  if (!bucket) return {};
  WarmUp result{backend_->warm_up_rows(method.method(), bucket->rows(), method.run_rows()), {}};
  std::unique_ptr<BoundMethod> other;
  if (result.rows != bucket->rows()) {
    warm_up_run(method, *bucket);
    other = backend_->bind(method.method(), {result.rows}, Binding::eager);
  }
  dsv41c_allocations counted{};
  for (const dsv41c_provider* p : kernels_.providers()) p->count_allocations(1, &counted);
  struct Stop {  // counting ends however the run ends
    const KernelTable& kernels;
    dsv41c_allocations& sum;
    ~Stop() {
      for (const dsv41c_provider* p : kernels.providers()) {
        dsv41c_allocations counted{};
        p->count_allocations(0, &counted);
        sum.count += counted.count;
        sum.bytes += counted.bytes;
        sum.pool_bytes += counted.pool_bytes;
      }
    }
  };
  {
    const Stop stop{kernels_, result.allocated};
    warm_up_run(method, other ? *other : *bucket);
  }
  return result;
}

void Executor::warm_up_run(const LoadedMethod& method, const BoundMethod& bound) {
  backend_->begin_step();
  poison();
  method.write_inputs({}, {.launched = bound.rows()});
  bound.run();
  backend_->synchronize();
}

void Executor::synchronize() {
  const Entered entered(*backend_);
  backend_->synchronize();
}

dsv41c_tensor Executor::state(const std::string& name) {
  const int64_t index = state_index(name);
  const State& s = plan().state[static_cast<size_t>(index)];
  const Entered entered(*backend_);
  return contiguous_tensor(backend_->read_state(index), s.dtype, s.sizes);
}

void Executor::write_state(const std::string& name, const void* data, int64_t bytes) {
  const int64_t index = state_index(name), needed = state_bytes(plan().state[static_cast<size_t>(index)]);
  if (bytes != needed)
    throw Error({.code = plan_format::E0801,
                 .subject = "state " + name,
                 .found = std::to_string(bytes) + " bytes",
                 .needed = std::to_string(needed) + " bytes, the whole tensor",
                 .action = "correct the call"});
  upload_check_.check_written(plan().state[static_cast<size_t>(index)], data);
  const Entered entered(*backend_);
  backend_->write_state(index, data);
  const char* const followed[] = {"slot_position", "window_floor", "replay_floor", "page_table"};
  if (std::ranges::find(followed, name) != std::end(followed)) upload_check_.forget_steps();
  if (name == "slot_position") upload_check_.place_slots();
}

int64_t Executor::state_index(const std::string& name) const {
  std::string known;
  for (size_t i = 0; i < plan().state.size(); ++i) {
    const State& s = plan().state[i];
    if (s.name == name) return static_cast<int64_t>(i);
    known += (known.empty() ? "" : ", ") + s.name;
  }
  throw Error({.code = plan_format::E0801,
               .subject = "state " + name,
               .found = "no such state",
               .needed = "one of: " + known,
               .action = "correct the name"});
}

}  // namespace dsv41c
