// Kernel calls as an executable graph: built node by node, or, to compare, captured from a stream.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "cuda/context.h"
#include "cuda/handles.h"
#include "cuda/kernel_call.h"

namespace dsv41c::cuda {

// What the graphs of an executor are and what they cost.
struct GraphStats {
  int64_t graphs = 0;
  int64_t nodes = 0;
  int64_t edges = 0;
  double bind_s = 0;  // addresses, parameters and launch shapes
  double add_s = 0;   // nodes and edges, or capture
  double instantiate_s = 0;
  double upload_s = 0;       // with the wait for it
  int64_t device_bytes = 0;  // that instantiation and upload took
};

// Adds the time of its life to a sum.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class LaunchGraph {
 public:
  // Adds a node for each call, after those that it must wait for.
  static LaunchGraph build(const Context& context, std::span<KernelCall> calls, GraphStats& stats);
  // Records the same calls from the stream: one behind the other.
  static LaunchGraph capture(const Driver& driver, std::span<KernelCall> calls, StreamHandle stream, GraphStats& stats);

  void instantiate(GraphStats& stats);  // the graph itself is then released
  void upload(StreamHandle stream) { driver_->call(driver_->graph_upload, executable_.get(), stream); }
  void launch(StreamHandle stream) const { driver_->call(driver_->graph_launch, executable_.get(), stream); }
  int64_t nodes() const { return nodes_; }

 private:
  LaunchGraph(const Driver& driver, Graph graph, int64_t nodes)
      : driver_(&driver), graph_(std::move(graph)), nodes_(nodes) {}

  const Driver* driver_;
  Graph graph_;
  Executable executable_;
  int64_t nodes_;
};

// Starts the calls on the stream, one behind the other.
void launch_singly(const Driver& driver, std::span<KernelCall> calls, std::vector<void*>& pointers,
                   StreamHandle stream);

}  // namespace dsv41c::cuda
