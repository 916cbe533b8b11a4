// Cuts a method's steps into graphs and fallback launches, and runs them in order.
#include "cuda/cuda_bound_method.h"

#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::cuda {

CudaBoundMethod::CudaBoundMethod(const Engine& engine, const Method& method, const RunRows& rows, LaunchMode mode,
                                 GraphStats& stats, int64_t max_nodes)
    : BoundMethod(rows.count), engine_(engine), method_(method), run_rows_(rows), values_([&] {
        const Timed timed(stats.bind_s);
        return ValueTable(method, rows, engine.regions);
      }()) {
  for (const Step& step : method.steps) add_step(step, mode, stats, max_nodes);
}

CudaBoundMethod::~CudaBoundMethod() {
  const CurrentForRelease current(engine_.context);
  if (num_graphs() > 0) engine_.driver().stream_synchronize.address(engine_.stream);  // one may be running
  stretches_.clear();
}

// A segment's runs of cubin kernels become graphs; a break's stay single, and so does whatever stands alone because
// the host asked for single launches.
void CudaBoundMethod::add_step(const Step& step, LaunchMode mode, GraphStats& stats, int64_t max_nodes) {
  Pending pending{{}, step.kind == StepKind::segment ? mode : LaunchMode::singly, stats, max_nodes};
  for (const Launch& launch : step.launches) {
    const Kernel& kernel = engine_.regions.plan->kernels[static_cast<size_t>(launch.kernel)];
    const LaunchPlace place{&method_, &launch, rows()};
    if (kernel.kind == BodyKind::sequence) {
      add_sequence(kernel, place, pending);
    } else if (kernel.kind == BodyKind::cuda) {
      const Timed timed(stats.bind_s);
      append_calls(kernel, operands_of(launch, values_), place, engine_.functions, pending.calls);
    } else {
      const LaunchTensors tensors(method_, launch, run_rows_, engine_.regions);
      add_fallback(launch.kernel, tensors.binding, place, pending);
    }
  }
  add_calls(pending);
}

void CudaBoundMethod::add_sequence(const Kernel& sequence, const LaunchPlace& place, Pending& pending) {
  const Plan& plan = *engine_.regions.plan;
  const LaunchTensors given(method_, *place.launch, run_rows_, engine_.regions);
  SequenceTensors tensors(plan, sequence, given.binding, place, engine_.driver().code());
  for (size_t i = 0; i < sequence.parts.size(); ++i) {
    const Part& part = sequence.parts[i];
    const Kernel& kernel = plan.kernels[static_cast<size_t>(part.kernel)];
    LaunchPlace at = place;
    at.part = static_cast<int64_t>(i);
    const dsv41c_binding binding = tensors.part(i);
    if (kernel.kind == BodyKind::cuda) {
      const Timed timed(pending.stats.bind_s);
      append_calls(kernel, operands_of(*place.launch, part, binding, tensors, values_), at, engine_.functions,
                   pending.calls);
    } else {
      add_fallback(part.kernel, binding, at, pending);
    }
  }
}

void CudaBoundMethod::add_calls(Pending& pending) {
  std::vector<KernelCall>& calls = pending.calls;
  const size_t most = pending.max_nodes > 0 ? static_cast<size_t>(pending.max_nodes) : calls.size();
  for (size_t begin = 0; begin < calls.size(); begin += most) {
    const std::span<KernelCall> run = std::span(calls).subspan(begin, std::min(most, calls.size() - begin));
    Stretch stretch;
    if (pending.mode == LaunchMode::graphs)
      stretch.graph = LaunchGraph::build(engine_.context, run, pending.stats);
    else if (pending.mode == LaunchMode::captured)
      stretch.graph = LaunchGraph::capture(engine_.driver(), run, engine_.stream, pending.stats);
    else
      std::ranges::move(run, std::back_inserter(stretch.calls));
    stretches_.push_back(std::move(stretch));
  }
  calls.clear();
}

void CudaBoundMethod::add_fallback(int64_t kernel, dsv41c_binding binding, const LaunchPlace& place, Pending& pending) {
  add_calls(pending);
  binding.device = engine_.context.device();
  binding.stream = engine_.stream;
  const std::string& op = engine_.regions.plan->kernels[static_cast<size_t>(kernel)].op;
  Stretch stretch;
  stretch.fallback.emplace(engine_.kernels[kernel], op, binding, place, engine_.driver().code());
  stretches_.push_back(std::move(stretch));
}

void CudaBoundMethod::instantiate(GraphStats& stats) {
  for (Stretch& stretch : stretches_)
    if (stretch.graph) stretch.graph->instantiate(stats);
}

void CudaBoundMethod::upload() {
  for (Stretch& stretch : stretches_)
    if (stretch.graph) stretch.graph->upload(engine_.stream);
}

void CudaBoundMethod::run() const {
  ProviderMessage message;
  for (Stretch& stretch : stretches_) {
    if (stretch.graph)
      stretch.graph->launch(engine_.stream);
    else if (stretch.fallback)
      stretch.fallback->run(message);
    else
      run_singly(stretch);
  }
}

void CudaBoundMethod::run_singly(Stretch& stretch) const {
  for (KernelCall& call : stretch.calls) {
    try {
      launch_singly(engine_.driver(), std::span(&call, 1), pointers_, engine_.stream);
    } catch (const Error& error) {
      ErrorFields fields = error.fields();
      fields.where = call.place.text();
      throw Error(std::move(fields));
    }
  }
}

int64_t CudaBoundMethod::num_graphs() const {
  return std::ranges::count_if(stretches_, [](const Stretch& stretch) { return stretch.graph.has_value(); });
}

int64_t CudaBoundMethod::num_nodes() const {
  int64_t nodes = 0;
  for (const Stretch& stretch : stretches_) nodes += stretch.graph ? stretch.graph->nodes() : 0;
  return nodes;
}

int64_t CudaBoundMethod::num_fallbacks() const {
  return std::ranges::count_if(stretches_, [](const Stretch& stretch) { return stretch.fallback.has_value(); });
}

}  // namespace dsv41c::cuda
