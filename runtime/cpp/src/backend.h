// What differs between devices: where memory lies, how inputs and outputs travel and how launches run.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "artifact.h"
#include "bound_method.h"
#include "dsv41c/executor.h"
#include "input_port.h"
#include "kernel_table.h"
#include "regions.h"
#include "step_limits.h"

namespace dsv41c {

class LoadedMethod;

enum class Binding { bucket, eager };

// Elements [first, first + count) of a state tensor, and what they become.
struct StatePart {
  int64_t index, first, count;
  const void* data;
};

struct DeviceOptions {
  int32_t device = 0;
  bool launch_singly = false;  // CUDA: no graphs
  std::string cuda_driver = "libcuda.so.1";
  std::optional<uint64_t> check_seed;  // CPU: every launch is checked
};

// One thread at a time. A device that works asynchronously enqueues in the order of the calls.
class Backend {
 public:
  virtual ~Backend() = default;

  // Between the two, the calling thread may use the device; every entry of the executor is inside such a pair.
  virtual void enter() {}
  virtual void leave() noexcept {}
  virtual void synchronize() {}     // until all that was enqueued has run
  virtual void drain() noexcept {}  // the same before a release or after a failure, whose cause was reported

  const Regions& regions() const { return regions_; }
  virtual int64_t planned_bytes() const = 0;
  virtual int64_t reserved_bytes() const = 0;

  virtual void reserve_inputs(int64_t bytes) = 0;  // staging of all input ports, InputPort::staging into it
  virtual std::unique_ptr<BoundMethod> bind(const Method& method, const RunRows& rows, Binding kind) = 0;
  virtual void finish_binding() {}  // after the buckets of all methods
  // Rows of the run that shows what a method's providers allocate; `smallest` is its smallest bucket.
  virtual int64_t warm_up_rows(const Method& method, int64_t smallest, int64_t max_rows) const = 0;
  virtual void finish_loading() {}

  virtual bool launches_singly() const { return false; }  // also in buckets: a debug mode
  virtual void begin_step() {}
  virtual void poison(int32_t byte) = 0;  // fills the arena
  virtual void write_input(const InputPort& port, const int32_t* list, const InputRows& rows) = 0;
  virtual void inputs_written() {}                                              // of one method
  virtual void copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;  // apart from each other, in a region
  virtual void step_enqueued(const dsv41c_step_inputs&, const Limits&) {}
  // For tests: the inputs of the last step, which its launches read when they run. Empty where they have run.
  virtual std::span<uint8_t> staged_inputs() { return {}; }

  virtual void fill_state() = 0;
  // What the host knows of an int32 state tensor without waiting; null for one that it does not follow.
  virtual const int32_t* host_state(const State& state) = 0;
  virtual void* read_output(const std::string& name, const dsv41c_tensor& tensor) = 0;  // address for the host
  virtual void* read_state(int64_t index) = 0;
  virtual void write_state(int64_t index, const void* data) = 0;
  // In order with the steps, and waiting for no more than a step does; the data may be changed afterwards.
  virtual void write_state_parts(std::span<const StatePart> parts) = 0;
  void write_state_part(int64_t index, int64_t first, int64_t count, const void* data) {
    const StatePart part{index, first, count, data};
    write_state_parts({&part, 1});
  }

  virtual nlohmann::ordered_json report() const;  // null where there is nothing to add
  // Internal bench of graphs; E0901 where there are none. Leaves the state undefined.
  virtual std::string graph_bench(std::span<const std::unique_ptr<LoadedMethod>> methods, int32_t replays);

 protected:
  Regions regions_;
};

// For the plan's target. `kernels` outlives what is returned.
std::unique_ptr<Backend> make_backend(const Artifact& artifact, const KernelTable& kernels,
                                      const DeviceOptions& options);

// The calling thread may use the backend's device while this lives.
class Entered {
 public:
  explicit Entered(Backend& backend) : backend_(backend) { backend.enter(); }
  ~Entered() { backend_.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Backend& backend_;
};

}  // namespace dsv41c
