// The C interface: checks handles, catches everything, keeps nothing.
#include <chrono>
#include <cstdio>

#include "allocations.h"
#include "check_option.h"
#include "dsv41c/executor.h"
#include "dsv41c/plan_generated.h"
#include "error.h"
#include "executor.h"
#include "executor_handle.h"

namespace {

using dsv41c::Error;
namespace plan_format = dsv41c::plan_format;

[[noreturn]] void bad_option(const char* name, const std::string& found, const char* needed) {
  throw Error(
      {.code = plan_format::E0901, .subject = name, .found = found, .needed = needed, .action = "correct the call"});
}

void check_flag(const char* name, int32_t value, const char* needed) {
  if (value != 0 && value != 1) bad_option(name, std::to_string(value), needed);
}

void check_options(const dsv41c_load_options& given) {
  check_flag("verify_full", given.verify_full, "0 or 1");
  check_flag("cuda_mode", given.cuda_mode, "0 (graphs) or 1 (launches one by one)");
  if (given.poison < 0 || given.poison > 255)
    bad_option("poison", std::to_string(given.poison), "a byte from 1 to 255, or 0 for none");
  if (given.reserved != 0) bad_option("reserved", std::to_string(given.reserved), "0");
  if (given.memory_budget < 0)
    bad_option("memory_budget", std::to_string(given.memory_budget), "at least 1 byte, or 0 for no limit");
  if (given.num_providers < 0) bad_option("num_providers", std::to_string(given.num_providers), "at least 0");
  if (given.num_providers > 0 && !given.providers) bad_option("providers", "a null pointer", "num_providers pointers");
  for (int32_t i = 0; i < given.num_providers; ++i)
    if (!given.providers[i])
      bad_option("providers", "a null pointer at " + std::to_string(i), "num_providers valid pointers");
}

dsv41c::LoadOptions load_options(const dsv41c_load_options* given) {
  dsv41c::LoadOptions options;
  options.providers.push_back(dsv41c_cpu_provider());
  options.device.check_seed = dsv41c::parse_check(given ? given->check : nullptr);
  if (!given) return options;
  check_options(*given);
  options.verify_full = given->verify_full != 0;
  options.poison = given->poison;
  options.device.device = given->device;
  options.device.launch_singly = given->cuda_mode == 1;
  if (given->cuda_driver) options.device.cuda_driver = given->cuda_driver;
  options.memory_budget = given->memory_budget;
  if (given->weights) options.weights = given->weights;
  for (int32_t i = 0; i < given->num_providers; ++i) options.providers.push_back(given->providers[i]);
  return options;
}

template <class T>
T& required(T* pointer, const char* name) {
  if (pointer) return *pointer;
  throw Error({.code = plan_format::E0801,
               .subject = name,
               .found = "a null pointer",
               .needed = "a valid pointer",
               .action = "correct the call"});
}

void fill_record(const dsv41c::Executor& executor, int64_t index, dsv41c_record& out) {
  const auto& records = executor.records();
  if (index < records.oldest() || index >= records.count())
    throw Error(
        {.code = plan_format::E0801,
         .subject = "record " + std::to_string(index),
         .found = "no such record",
         .needed = "an index from " + std::to_string(records.oldest()) + " below " + std::to_string(records.count()),
         .action = "read records before 65,536 newer ones replace them"});
  const auto& record = records.at(index);
  out = {};
  std::snprintf(out.method, sizeof out.method, "%s",
                executor.plan().methods[static_cast<size_t>(record.method)].name.c_str());
  if (record.parts > 0)
    std::snprintf(out.reason, sizeof out.reason, "part %d of %d%s", record.part, record.parts,
                  reason_text(record.reason));
  else
    std::snprintf(out.reason, sizeof out.reason, "%s", reason_text(record.reason));
  out.bucket = record.launched_rows;
  out.rows = record.rows;
  out.pad_rows = record.launched_rows - record.rows;
  out.eager = is_eager(record.reason);
  out.us = record.us;
}

}  // namespace

extern "C" {

int32_t dsv41c_open(const char* path, const dsv41c_load_options* options, dsv41c_executor** executor,
                    dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    dsv41c_executor*& out = required(executor, "executor");
    out = nullptr;
    out = new dsv41c_executor{dsv41c::Executor(&required(path, "path"), load_options(options))};
  });
}

void dsv41c_close(dsv41c_executor* executor) { delete executor; }

int32_t dsv41c_step(dsv41c_executor* executor, const dsv41c_step_inputs* inputs, dsv41c_error* error) {
  return dsv41c::guard(error, [&] { required(executor, "executor").executor.step(required(inputs, "inputs")); });
}

int32_t dsv41c_synchronize(dsv41c_executor* executor, dsv41c_error* error) {
  return dsv41c::guard(error, [&] { required(executor, "executor").executor.synchronize(); });
}

int32_t dsv41c_output(dsv41c_executor* executor, const char* name, dsv41c_tensor* tensor, dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    required(tensor, "tensor") = required(executor, "executor").executor.output(&required(name, "name"));
  });
}

int32_t dsv41c_state(dsv41c_executor* executor, const char* name, dsv41c_tensor* tensor, dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    required(tensor, "tensor") = required(executor, "executor").executor.state(&required(name, "name"));
  });
}

int32_t dsv41c_state_write(dsv41c_executor* executor, const char* name, const void* data, int64_t bytes,
                           dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    required(executor, "executor")
        .executor.write_state(&required(name, "name"), &required(static_cast<const char*>(data), "data"), bytes);
  });
}

int32_t dsv41c_graph_bench(dsv41c_executor* executor, int32_t replays, const char** json, dsv41c_error* error) {
  return dsv41c::guard(
      error, [&] { required(json, "json") = required(executor, "executor").executor.graph_bench(replays).c_str(); });
}

int32_t dsv41c_step_bench(dsv41c_executor* executor, const dsv41c_step_inputs* inputs, int32_t steps, const char** json,
                          dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    required(json, "json") =
        required(executor, "executor").executor.step_bench(required(inputs, "inputs"), steps).c_str();
  });
}

const char* dsv41c_report(dsv41c_executor* executor) {
  return executor ? executor->executor.report().c_str() : nullptr;
}

int64_t dsv41c_num_records(dsv41c_executor* executor) { return executor ? executor->executor.records().count() : 0; }

int32_t dsv41c_record_at(dsv41c_executor* executor, int64_t index, dsv41c_record* record, dsv41c_error* error) {
  return dsv41c::guard(
      error, [&] { fill_record(required(executor, "executor").executor, index, required(record, "record")); });
}

void* dsv41c_staged_inputs(dsv41c_executor* executor, int64_t* bytes) {
  const std::span<uint8_t> staged = executor ? executor->executor.staged_inputs() : std::span<uint8_t>();
  if (bytes) *bytes = static_cast<int64_t>(staged.size());
  return staged.data();
}

int64_t dsv41c_heap_allocations(void) { return dsv41c::heap_allocations(); }
}
