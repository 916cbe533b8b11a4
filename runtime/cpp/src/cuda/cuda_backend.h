// A CUDA device: one allocation for weights and the plan's memory, one stream, graphs of cubin launches.
#pragma once

#include <map>
#include <optional>

#include "backend.h"
#include "cuda/cuda_bound_method.h"
#include "cuda/upload_ring.h"
#include "state_mirror.h"

namespace dsv41c::cuda {

class CudaBackend final : public Backend {
 public:
  // E0704, E0705, E0706, E0701, E0601, E0602, E0703.
  CudaBackend(const Artifact& artifact, const KernelTable& kernels, const DeviceOptions& options);
  ~CudaBackend() override;

  void enter() override { context_.push(); }
  void leave() noexcept override { context_.pop(); }
  void synchronize() override;
  void drain() noexcept override;

  int64_t planned_bytes() const override { return planned_bytes_; }
  int64_t reserved_bytes() const override { return reserved_bytes_; }
  void reserve_inputs(int64_t bytes) override;
  std::unique_ptr<BoundMethod> bind(const Method& method, const RunRows& rows, Binding kind) override;
  void finish_binding() override;
  int64_t warm_up_rows(const Method& method, int64_t smallest, int64_t max_rows) const override;
  void finish_loading() override { driver_.loaded(); }

  bool launches_singly() const override { return launch_singly_; }
  void begin_step() override;
  void poison(int32_t byte) override;
  void write_input(const InputPort& port, const int32_t* list, const InputRows& rows) override;
  void copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  void inputs_written() override;
  void step_enqueued(const dsv41c_step_inputs& inputs, const Limits& limits) override;

  void fill_state() override;
  const int32_t* host_state(const State& state) override { return mirror_.find(state.name); }
  void* read_output(const std::string& name, const dsv41c_tensor& tensor) override;
  void* read_state(int64_t index) override;
  void write_state(int64_t index, const void* data) override;
  void write_state_parts(std::span<const StatePart> parts) override;

  nlohmann::ordered_json report() const override;
  std::string graph_bench(std::span<const std::unique_ptr<LoadedMethod>> methods, int32_t replays) override;

 private:
  // What lives in the context; released before it.
  struct Resources {
    DeviceMemory memory;
    Stream stream;
    FunctionTable functions;
    std::optional<UploadRing> ring;
    struct Output {
      PinnedMemory memory;
      int64_t bytes = 0;
    };
    std::map<std::string, Output> outputs;  // by port name, as large as the largest read
  };

  void reserve(const Artifact& artifact);
  // Instantiates and uploads, adding to `stats`; returns the device memory that it took.
  int64_t measure_graphs(std::span<CudaBoundMethod* const> bound, GraphStats& stats);
  void fill_tensor(const State& state);
  const Plan& plan() const { return *regions_.plan; }
  StreamHandle stream() const { return resources_->stream.get(); }
  int64_t free_bytes() const;

  Driver driver_;
  Context context_;
  bool launch_singly_;
  int64_t planned_bytes_ = 0;
  int64_t reserved_bytes_ = 0;  // asked of the driver
  StateMirror mirror_;
  struct Release {
    const Context* context;
    void operator()(Resources* resources) const noexcept;
  };
  std::unique_ptr<Resources, Release> resources_;
  std::optional<Engine> engine_;
  std::vector<CudaBoundMethod*> pending_;  // bound while loading, not yet instantiated
  GraphStats stats_;
  struct MethodStats {
    int64_t graphs = 0;
    int64_t nodes = 0;
    int64_t fallbacks = 0;  // of one run
  };
  std::map<std::string, MethodStats> method_stats_;
  std::map<int64_t, std::vector<uint8_t>> states_;  // copies that read_state has handed out
};

}  // namespace dsv41c::cuda
