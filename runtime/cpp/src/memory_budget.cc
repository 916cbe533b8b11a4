// Sums the classes of a plan's memory and names the largest when they exceed the budget.
#include "memory_budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

int64_t num_nodes(const Kernel& kernel) {
  return kernel.kind == BodyKind::cuda ? static_cast<int64_t>(kernel.launches.size()) : 0;
}

// A break's launches run one by one and are no part of a graph.
int64_t num_nodes(const Plan& plan, const Method& method) {
  int64_t nodes = 0;
  for (const Step& step : method.steps) {
    if (step.kind != StepKind::segment) continue;
    for (const Launch& launch : step.launches) {
      const Kernel& kernel = plan.kernels[static_cast<size_t>(launch.kernel)];
      nodes += num_nodes(kernel);
      for (const Part& part : kernel.parts) nodes += num_nodes(plan.kernels[static_cast<size_t>(part.kernel)]);
    }
  }
  return nodes;
}

}  // namespace

PlannedMemory planned_memory(const Plan& plan, bool with_graphs) {
  const Memory& memory = plan.memory;
  PlannedMemory planned{memory.state_bytes, memory.bridge_bytes, memory.io_bytes, memory.arena_bytes};
  if (plan.target == "cpu") return planned;
  const int64_t unit = plan_format::DEVICE_ALIGNMENT;
  for (int64_t part : {planned.state, planned.bridges, planned.io, planned.arena})
    planned.alignment += (unit - part % unit) % unit;
  if (with_graphs)
    for (const Method& method : plan.methods)
      planned.graphs +=
          num_nodes(plan, method) * static_cast<int64_t>(method.buckets.size()) * plan_format::GRAPH_NODE_BYTES;
  return planned;
}

void check_memory_budget(const Plan& plan, int64_t budget, bool with_graphs) {
  const PlannedMemory planned = planned_memory(plan, with_graphs);
  const int64_t total = planned.total();
  if (budget == 0 || total <= budget) return;
  const std::array<std::pair<int64_t, const char*>, 6> classes{{{planned.state, "state"},
                                                                {planned.bridges, "bridges"},
                                                                {planned.io, "io"},
                                                                {planned.arena, "arena"},
                                                                {planned.alignment, "alignment"},
                                                                {planned.graphs, "graphs"}}};
  const auto largest = std::ranges::max_element(classes, {}, &std::pair<int64_t, const char*>::first);
  throw Error({.code = plan_format::E0707,
               .subject = "memory budget of " + std::to_string(budget) + " bytes",
               .found = "a plan of " + std::to_string(total) + " bytes, " + std::to_string(total - budget) +
                        " too many; the largest class is " + largest->second + ": " + std::to_string(largest->first),
               .needed = "a budget of at least " + std::to_string(total) + " bytes",
               .action = "raise the budget, or compile with what `dsv41c plan --budget` proposes"});
}

}  // namespace dsv41c
