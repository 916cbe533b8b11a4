// The load report: memory by class, launches by provider, what ATen allocates, limits of a step.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "check_option.h"
#include "executor.h"

namespace dsv41c {
namespace {

using Json = nlohmann::ordered_json;

Json optional(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json limits_json(const Limits& limits) {
  return {{"slots", optional(limits.slots)},
          {"pages", optional(limits.pages)},
          {"pages_per_slot", optional(limits.pages_per_slot)},
          {"block_size", optional(limits.block_size)},
          {"positions", optional(limits.positions)},
          {"vocabulary", optional(limits.vocabulary)}};
}

void count(Json& counts, const char* provider) {
  Json& number = counts[provider];
  number = (number.is_null() ? 0 : number.get<int64_t>()) + 1;
}

int64_t count_steps(const Method& method, StepKind kind) { return std::ranges::count(method.steps, kind, &Step::kind); }

// A launch of a sequence counts as that, because its parts may have several providers.
Json launches_by_provider(const Method& method, const KernelTable& kernels) {
  Json counts = Json::object();
  for (const Step& step : method.steps)
    for (const Launch& launch : step.launches) count(counts, kernels[launch.kernel].name);
  return counts;
}

// Every part of a sequence counts, with its own provider.
Json kernels_by_provider(const Plan& plan, const Method& method, const KernelTable& kernels) {
  Json counts = Json::object();
  for (const Step& step : method.steps)
    for (const Launch& launch : step.launches) {
      const Kernel& kernel = plan.kernels[static_cast<size_t>(launch.kernel)];
      if (kernel.kind != BodyKind::sequence) count(counts, kernels[launch.kernel].name);
      for (const Part& part : kernel.parts) count(counts, kernels[part.kernel].name);
    }
  return counts;
}

}  // namespace

std::string render_report(const Executor& executor, double seconds) {
  const Memory& memory = executor.plan().memory;
  Json methods = Json::object(), aten = Json::object();
  int64_t pool_bytes = 0;
  for (size_t i = 0; i < executor.plan().methods.size(); ++i) {
    const Method& method = executor.plan().methods[i];
    const WarmUp& warm = executor.warm_ups_[i];
    methods[method.name] = {{"axis", method.axis},
                            {"max_rows", executor.methods_[i]->max_rows()},
                            {"buckets", method.buckets},
                            {"segments", count_steps(method, StepKind::segment)},
                            {"breaks", count_steps(method, StepKind::break_)},
                            {"policy", method.ladder.policy},
                            {"above", method.ladder.above},
                            {"run_rows", executor.methods_[i]->run_rows()},
                            {"launches", launches_by_provider(method, executor.kernels_)},
                            {"kernels", kernels_by_provider(executor.plan(), method, executor.kernels_)}};
    aten[method.name] = {{"rows", warm.rows}, {"allocations", warm.allocated.count}, {"bytes", warm.allocated.bytes}};
    pool_bytes = std::max(pool_bytes, warm.allocated.pool_bytes);
  }
  Json report = {{"planned_bytes", executor.backend_->planned_bytes()},
                 {"reserved_bytes", executor.backend_->reserved_bytes()},
                 {"memory",
                  {{"state", memory.state_bytes},
                   {"bridges", memory.bridge_bytes},
                   {"io", memory.io_bytes},
                   {"arena", memory.arena_bytes}}},
                 {"weight_bytes", executor.artifact_.weight_bytes()},
                 {"gathered_weight_bytes", executor.artifact_.gathered_weight_bytes()},
                 {"seconds", seconds},
                 {"check", check_text(executor.check_)},
                 {"limits", limits_json(executor.upload_check_.limits())},
                 {"methods", methods},
                 {"aten", aten}};
  Json device = executor.backend_->report();
  if (!device.is_null()) {
    device["fallback_pool_bytes"] = pool_bytes;
    report["cuda"] = std::move(device);
  }
  return report.dump();
}

}  // namespace dsv41c
