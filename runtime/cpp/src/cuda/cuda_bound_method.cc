// Cuts a method's steps into graphs and fallback launches, and runs them in order.
#include "cuda/cuda_bound_method.h"

#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::cuda {

CudaBoundMethod::CudaBoundMethod(const Engine& engine, const Method& method, int64_t rows, LaunchMode mode,
                                 GraphStats& stats, int64_t max_nodes)
    : BoundMethod(rows), engine_(engine), method_(method), values_([&] {
        const Timed timed(stats.bind_s);
        return ValueTable(method, rows, engine.regions);
      }()) {
  for (const Step& step : method.steps) add_step(step, mode, stats, max_nodes);
}

CudaBoundMethod::~CudaBoundMethod() {
  const CurrentForRelease current(engine_.context);
  if (num_graphs() > 0) engine_.driver().stream_synchronize.address(engine_.stream);  // one may be running
  parts_.clear();
}

// A segment's runs of cubin launches become graphs; a break's stay single, and so does whatever stands alone because
// the host asked for single launches.
void CudaBoundMethod::add_step(const Step& step, LaunchMode mode, GraphStats& stats, int64_t max_nodes) {
  const LaunchMode chosen = step.kind == StepKind::segment ? mode : LaunchMode::singly;
  std::vector<KernelCall> calls;
  for (const Launch& launch : step.launches) {
    const Kernel& kernel = engine_.regions.plan->kernels[static_cast<size_t>(launch.kernel)];
    if (kernel.kind == BodyKind::cuda) {
      const Timed timed(stats.bind_s);
      append_calls(kernel, launch, rows(), values_, engine_.functions, calls);
    } else {
      add_calls(calls, chosen, stats, max_nodes);
      add_fallback(launch);
    }
  }
  add_calls(calls, chosen, stats, max_nodes);
}

void CudaBoundMethod::add_calls(std::vector<KernelCall>& calls, LaunchMode mode, GraphStats& stats, int64_t max_nodes) {
  const size_t most = max_nodes > 0 ? static_cast<size_t>(max_nodes) : calls.size();
  for (size_t begin = 0; begin < calls.size(); begin += most) {
    const std::span<KernelCall> run = std::span(calls).subspan(begin, std::min(most, calls.size() - begin));
    Part part;
    if (mode == LaunchMode::graphs)
      part.graph = LaunchGraph::build(engine_.context, run, place, this, stats);
    else if (mode == LaunchMode::captured)
      part.graph = LaunchGraph::capture(engine_.driver(), run, engine_.stream, stats);
    else
      std::ranges::move(run, std::back_inserter(part.calls));
    parts_.push_back(std::move(part));
  }
  calls.clear();
}

void CudaBoundMethod::add_fallback(const Launch& launch) {
  LaunchTensors tensors(method_, launch, rows(), engine_.regions);
  tensors.binding.device = engine_.context.device();
  tensors.binding.stream = engine_.stream;
  const std::string& op = engine_.regions.plan->kernels[static_cast<size_t>(launch.kernel)].op;
  Part part;
  part.fallback.emplace(engine_.kernels[launch.kernel], op, tensors.binding, method_, launch, engine_.driver().code());
  parts_.push_back(std::move(part));
}

void CudaBoundMethod::instantiate(GraphStats& stats) {
  for (Part& part : parts_)
    if (part.graph) part.graph->instantiate(stats);
}

void CudaBoundMethod::upload() {
  for (Part& part : parts_)
    if (part.graph) part.graph->upload(engine_.stream);
}

void CudaBoundMethod::run() const {
  ProviderMessage message;
  for (Part& part : parts_) {
    if (part.graph)
      part.graph->launch(engine_.stream);
    else if (part.fallback)
      part.fallback->run(message);
    else
      run_singly(part);
  }
}

void CudaBoundMethod::run_singly(Part& part) const {
  for (KernelCall& call : part.calls) {
    try {
      launch_singly(engine_.driver(), std::span(&call, 1), pointers_, engine_.stream);
    } catch (const Error& error) {
      ErrorFields fields = error.fields();
      fields.where = place(this, call);
      throw Error(std::move(fields));
    }
  }
}

std::string CudaBoundMethod::place(const void* owner, const KernelCall& call) {
  const auto* self = static_cast<const CudaBoundMethod*>(owner);
  return launch_place(self->method_, *call.launch, self->rows());
}

int64_t CudaBoundMethod::num_graphs() const {
  return std::ranges::count_if(parts_, [](const Part& part) { return part.graph.has_value(); });
}

int64_t CudaBoundMethod::num_nodes() const {
  int64_t nodes = 0;
  for (const Part& part : parts_) nodes += part.graph ? part.graph->nodes() : 0;
  return nodes;
}

int64_t CudaBoundMethod::num_fallbacks() const {
  return std::ranges::count_if(parts_, [](const Part& part) { return part.fallback.has_value(); });
}

}  // namespace dsv41c::cuda
