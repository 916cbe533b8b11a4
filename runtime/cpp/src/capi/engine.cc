// dsv_engine: options, creation over an artifact or an executor, state, closing.
#include "capi/aten_library.h"
#include "capi/entries.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "capi/time_limit.h"
#include "check_option.h"
#include "dsv41c/executor.h"
#include "executor_handle.h"

namespace dsv41c::capi {
namespace {

LoadOptions load_options(const dsv_artifact& artifact, const dsv_engine_options& given) {
  LoadOptions options;
  options.verify_full = artifact.verify_full;
  options.weights = artifact.weights;
  options.memory_budget = bounded(given.memory_budget);
  options.device.device = given.device_id;
  options.device.check_seed = parse_check(nullptr);
  options.providers.push_back(dsv41c_cpu_provider());
  if (const dsv41c_provider* aten = aten_provider(artifact.plan)) options.providers.push_back(aten);
  return options;
}

Engine& engine_of(dsv_engine* engine) { return *required(engine, "engine").engine; }

dsv_stats stats_of(const Statistics& now) {
  dsv_stats stats{};
  stats.requests_active = now.active;
  stats.requests_queued = now.queued;
  stats.requests_done = now.done;
  stats.requests_cancelled = now.cancelled;
  stats.requests_failed = now.failed;
  stats.requests_refused = now.refused;
  stats.tokens_in = now.tokens_in;
  stats.tokens_out = now.tokens_out;
  stats.kv_pages_total = now.pages_total;
  stats.kv_pages_used = now.pages_used;
  stats.slots_total = now.slots_total;
  stats.slots_used = now.slots_used;
  stats.steps = now.steps;
  stats.step_rows = now.step_rows;
  stats.step_requests = now.step_requests;
  stats.preemptions = now.preemptions;
  stats.planned_bytes = now.planned_bytes;
  stats.weight_bytes = now.weight_bytes;
  return stats;
}

dsv_engine_info info_of(const EngineLimits& limits) {
  dsv_engine_info info{};
  info.max_batch = static_cast<uint32_t>(limits.slots);
  info.max_batch_tokens = static_cast<uint32_t>(limits.rows);
  info.max_queue = static_cast<uint32_t>(limits.queue);
  info.vocab = static_cast<uint32_t>(limits.vocabulary);
  info.max_context = static_cast<uint64_t>(limits.context);
  info.block_size = static_cast<uint64_t>(limits.block_size);
  info.kv_pages = static_cast<uint64_t>(limits.pages);
  return info;
}

}  // namespace

dsv_status* engine_create(dsv_artifact* artifact, const dsv_engine_options* options, dsv_engine** out) {
  return guard([&] {
    required(out, "out") = nullptr;
    const dsv_artifact& opened = required(artifact, "artifact");
    const dsv_engine_options given = read_engine_options(options);
    EngineOptions chosen = engine_options(given);
    lowered(opened.limits, chosen.lower);  // before anything is reserved
    auto executor = std::make_shared<Executor>(opened.path, load_options(opened, given));
    *out = new dsv_engine{std::make_shared<Engine>(std::move(executor), std::move(chosen))};
  });
}

dsv_status* engine_info(dsv_engine* engine, dsv_engine_info* info) {
  return guard([&] { write_struct(info, "dsv_engine_info", info_of(engine_of(engine).limits())); });
}

dsv_status* engine_ready(dsv_engine* engine) {
  return guard([&] { engine_of(engine).check_ready(); });
}

dsv_status* engine_stats(dsv_engine* engine, dsv_stats* stats) {
  return guard([&] { write_struct(stats, "dsv_stats", stats_of(engine_of(engine).statistics())); });
}

dsv_status* engine_metrics(dsv_engine* engine, dsv_buffer** out) {
  return guard([&] {
    required(out, "out") = nullptr;
    *out = new dsv_buffer{engine_of(engine).statistics().prometheus()};
  });
}

dsv_status* engine_pause(dsv_engine* engine, int32_t paused) {
  return guard([&] {
    if (paused != 0 && paused != 1) unknown_field("paused of engine_pause", std::to_string(paused));
    engine_of(engine).pause(paused == 1);
  });
}

dsv_status* engine_close(dsv_engine* engine, uint64_t timeout_ms) {
  return guard([&] {
    if (!engine) return;
    const bool delivered = engine->engine->close(milliseconds(timeout_ms));
    delete engine;
    if (!delivered) throw time_limit("engine_close", timeout_ms, "all callbacks to return");
  });
}

}  // namespace dsv41c::capi

// For the Python package, which steps the executor itself while no engine is over it. The executor must outlive the
// engine's close.
extern "C" __attribute__((visibility("default"))) dsv_status* dsv41c_engine_over(dsv41c_executor* executor,
                                                                                 const dsv_engine_options* options,
                                                                                 dsv_engine** out) {
  using namespace dsv41c;
  return capi::guard([&] {
    capi::required(out, "out") = nullptr;
    Executor& borrowed = capi::required(executor, "executor").executor;
    const std::shared_ptr<Executor> shared(std::shared_ptr<Executor>(), &borrowed);
    *out = new dsv_engine{std::make_shared<Engine>(shared, capi::engine_options(capi::read_engine_options(options)))};
  });
}
