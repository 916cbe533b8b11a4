// Loading: memory, kernels, bound methods, a warm-up on pad rows.
#include "executor.h"

#include <algorithm>
#include <chrono>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

Executor::Executor(const std::string& path, const LoadOptions& options)
    : artifact_(path, options.verify_full),
      reservation_(plan().memory),
      poison_(options.poison),
      kernels_(plan(), options.providers),
      regions_{&plan(), &reservation_, &artifact_.weights()},
      upload_check_(limits_of(plan(), reservation_.state())),
      warm_ups_(plan().methods.size()),
      last_rows_(plan().methods.size(), 0) {
  fill_state(plan(), reservation_.state());
  load_methods();
  load_flows();
  warm_up();
  report_ = render_report(*this, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
}

void Executor::load_methods() {
  for (const Method& method : plan().methods)
    methods_.push_back(std::make_unique<LoadedMethod>(method, symbol_of(plan(), method).hi, regions_, kernels_));
}

void Executor::load_flows() {
  const auto& methods = plan().methods;
  for (const Flow& flow : plan().flows) {
    LoadedFlow loaded{&flow, {}, flow.requires_ == "all_rows_output"};
    for (const std::string& name : flow.methods)
      loaded.methods.push_back(static_cast<size_t>(std::ranges::find(methods, name, &Method::name) - methods.begin()));
    flows_.push_back(std::move(loaded));
  }
}

// Every method runs once on pad rows, in the order of the flows, so that bridges are written before they are read.
// It shows what ATen allocates, and the providers check their outputs on a first launch.
void Executor::warm_up() {
  for (const LoadedFlow& flow : flows_)
    for (size_t index : flow.methods)
      if (warm_ups_[index].rows == 0) warm_ups_[index] = warm_up(*methods_[index]);
  fill_state(plan(), reservation_.state());
}

WarmUp Executor::warm_up(const LoadedMethod& method) const {
  const BoundMethod* bucket = method.smallest();
  if (!bucket) return {};
  poison();
  method.write_inputs({}, 0, bucket->rows());
  int64_t count = 0, bytes = 0;
  WarmUp result{bucket->rows(), 0, 0};
  for (const dsv41c_provider* p : kernels_.providers()) p->count_allocations(1, &count, &bytes);
  struct Stop {  // counting ends however the run ends
    const KernelTable& kernels;
    WarmUp& result;
    ~Stop() {
      for (const dsv41c_provider* p : kernels.providers()) {
        int64_t count = 0, bytes = 0;
        p->count_allocations(0, &count, &bytes);
        result.allocations += count;
        result.bytes += bytes;
      }
    }
  };
  {
    const Stop stop{kernels_, result};
    bucket->run();
  }
  return result;
}

dsv41c_tensor Executor::state(const std::string& name) const {
  std::string known;
  for (const State& s : plan().state) {
    if (s.name == name) {
      dsv41c_tensor t{};
      t.data = reservation_.state() + s.offset;
      t.dtype = s.dtype;
      t.ndim = static_cast<int32_t>(s.sizes.size());
      int64_t stride = 1;
      for (size_t d = s.sizes.size(); d-- > 0; stride *= s.sizes[d]) {
        t.sizes[d] = s.sizes[d];
        t.strides[d] = stride;
      }
      return t;
    }
    known += (known.empty() ? "" : ", ") + s.name;
  }
  throw Error({.code = plan_format::E0801,
               .subject = "state " + name,
               .found = "no such state",
               .needed = "one of: " + known,
               .action = "correct the name"});
}

}  // namespace dsv41c
