// The executor: an opened artifact with its memory, prepared kernels and bound methods.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "dsv41c/executor.h"
#include "kernel_table.h"
#include "loaded_method.h"
#include "records.h"
#include "split.h"
#include "upload.h"

namespace dsv41c {

struct LoadOptions {
  bool verify_full = false;
  int32_t poison = 0;  // byte that fills the arena before every method, 0 = off
  std::vector<const dsv41c_provider*> providers;
  DeviceOptions device;
  std::string weights;        // checkpoint directory of an artifact that maps its weights
  int64_t memory_budget = 0;  // bytes beside the weights, 0 = no limit
};

// What ATen's own kernels allocate in one run of a method.
struct WarmUp {
  int64_t rows = 0;
  dsv41c_allocations allocated{};
};

class Executor {
 public:
  Executor(const std::string& path, const LoadOptions& options);

  void step(const dsv41c_step_inputs& inputs);    // step.cc
  dsv41c_tensor output(const std::string& name);  // step.cc
  void synchronize();
  dsv41c_tensor state(const std::string& name);
  void write_state(const std::string& name, const void* data, int64_t bytes);
  const std::string& graph_bench(int32_t replays);                                 // bench.cc
  const std::string& step_bench(const dsv41c_step_inputs& inputs, int32_t steps);  // bench.cc
  const std::string& report() const { return report_; }
  std::span<uint8_t> staged_inputs() { return backend_->staged_inputs(); }
  const RecordRing& records() const { return records_; }
  const Plan& plan() const { return artifact_.plan(); }
  const std::string& path() const { return artifact_.path(); }
  int64_t planned_bytes() const { return backend_->planned_bytes(); }
  int64_t weight_bytes() const { return artifact_.weight_bytes(); }

 private:
  friend std::string render_report(const Executor& executor, double seconds);

  struct LoadedFlow {
    const Flow* flow;
    std::vector<size_t> methods;
    bool needs_all_rows_output;
  };

  void load_methods();
  void load_flows();
  void warm_up();
  WarmUp warm_up(const LoadedMethod& method);
  void warm_up_run(const LoadedMethod& method, const BoundMethod& bound);
  int64_t state_index(const std::string& name) const;
  void run_step(const dsv41c_step_inputs& inputs);
  const LoadedFlow& choose_flow(const dsv41c_step_inputs& inputs) const;
  bool holds(const LoadedFlow& flow, const dsv41c_step_inputs& inputs) const;
  void run_method(size_t index, const dsv41c_step_inputs& inputs, int64_t rows);
  void run_split(size_t index, const dsv41c_step_inputs& inputs, const Split& split);     // split_step.cc
  const int32_t* moved_logit_rows(const dsv41c_step_inputs& inputs, const Split& split);  // split_step.cc
  void poison();

  std::chrono::steady_clock::time_point begin_ =
      std::chrono::steady_clock::now();  // first, so that it sees all of loading
  // What is released last comes first: launches before the kernels, and all of them before the device.
  Artifact artifact_;
  int32_t poison_;
  std::optional<uint64_t> check_;  // seed
  KernelTable kernels_;
  std::unique_ptr<Backend> backend_;
  UploadCheck upload_check_;
  std::vector<std::unique_ptr<LoadedMethod>> methods_;  // by plan method index
  std::vector<LoadedFlow> flows_;
  std::vector<WarmUp> warm_ups_;  // by plan method index
  const LoadedFlow* last_flow_ = nullptr;
  std::vector<int64_t> last_rows_;         // by plan method index, rows of the last step
  std::vector<int32_t> moved_logit_rows_;  // room for a step with a split
  RecordRing records_;
  std::string report_, bench_;
  struct Drained {  // last: nothing is released while the device works on it
    Backend& backend;
    ~Drained() { backend.drain(); }
  } drained_;
};

std::string render_report(const Executor& executor, double seconds);

}  // namespace dsv41c
