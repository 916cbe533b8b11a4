// A method at one number of rows on CUDA: graphs, single launches, and fallback launches between them, on one stream.
#pragma once

#include <optional>
#include <vector>

#include "backend.h"
#include "cuda/context.h"
#include "cuda/launch_graph.h"
#include "provider_launch.h"

namespace dsv41c::cuda {

enum class LaunchMode { graphs, singly, captured };

// What binding needs of the device; outlives all that is bound.
struct Engine {
  const Context& context;
  const FunctionTable& functions;
  const KernelTable& kernels;
  const Regions& regions;
  StreamHandle stream;

  const Driver& driver() const { return context.driver(); }
};

class CudaBoundMethod final : public BoundMethod {
 public:
  // Graphs are added (or captured) here, and ready to run after finish(). `max_nodes` cuts longer runs of launches
  // into several graphs; 0 does not.
  CudaBoundMethod(const Engine& engine, const Method& method, const RunRows& rows, LaunchMode mode, GraphStats& stats,
                  int64_t max_nodes = 0);
  ~CudaBoundMethod() override;

  void instantiate(GraphStats& stats);
  void upload();
  void run() const override;
  int64_t num_graphs() const;
  int64_t num_nodes() const;
  int64_t num_fallbacks() const;

 private:
  // One of: a graph, calls that are launched one by one, a provider's launch.
  struct Stretch {
    std::optional<LaunchGraph> graph;
    std::vector<KernelCall> calls;
    std::optional<ProviderLaunch> fallback;
  };

  // What add_step collects: calls that have no stretch yet.
  struct Pending {
    std::vector<KernelCall> calls;
    LaunchMode mode;
    GraphStats& stats;
    int64_t max_nodes;
  };

  void add_step(const Step& step, LaunchMode mode, GraphStats& stats, int64_t max_nodes);
  void add_sequence(const Kernel& sequence, const LaunchPlace& place, Pending& pending);
  void add_calls(Pending& pending);
  // Ends the pending calls: a provider's kernel runs between graphs.
  void add_fallback(int64_t kernel, dsv41c_binding binding, const LaunchPlace& place, Pending& pending);
  void run_singly(Stretch& stretch) const;

  const Engine& engine_;
  const Method& method_;
  const RunRows run_rows_;
  const ValueTable values_;
  mutable std::vector<Stretch> stretches_;  // a launch of single calls points into its parameters
  mutable std::vector<void*> pointers_;
};

}  // namespace dsv41c::cuda
