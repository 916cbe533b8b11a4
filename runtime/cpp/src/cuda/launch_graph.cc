// Graphs from calls.
#include "cuda/launch_graph.h"

#include "error.h"

namespace dsv41c::cuda {
namespace {

void launch_kernel(const Driver& driver, const KernelNodeParams& p, StreamHandle stream) {
  driver.call(driver.launch, p.function, p.grid[0], p.grid[1], p.grid[2], p.block[0], p.block[1], p.block[2],
              p.shared_bytes, stream, p.parameters, static_cast<void**>(nullptr));
}

void launch(const Driver& driver, KernelCall& call, std::vector<void*>& pointers, StreamHandle stream) {
  const auto bytes = static_cast<size_t>(call.bytes);
  switch (call.kind) {
    case NodeKind::kernel:
      return launch_kernel(driver, call.parameters(pointers), stream);
    case NodeKind::copy:
      return driver.call(driver.copy_async, call.target, call.source, bytes, stream);
    case NodeKind::memset:
      return driver.call(driver.fill_8, call.target, static_cast<unsigned char>(call.value), bytes, stream);
  }
}

NodeHandle add_node(const Context& context, GraphHandle graph, std::span<const NodeHandle> sources, KernelCall& call,
                    std::vector<void*>& pointers) {
  const Driver& driver = context.driver();
  NodeHandle node = nullptr;
  const auto add = [&](const auto& function, const auto& parameters, auto... context_handle) {
    driver.call(function, &node, graph, sources.data(), sources.size(), &parameters, context_handle...);
    return node;
  };
  switch (call.kind) {
    case NodeKind::kernel:
      return add(driver.graph_add_kernel, call.parameters(pointers));
    case NodeKind::copy:
      return add(driver.graph_add_copy, call.copy_params(), context.handle());
    case NodeKind::memset:
      return add(driver.graph_add_memset, call.memset_params(), context.handle());
  }
  return node;
}

std::vector<std::span<const Access>> accesses_of(std::span<const KernelCall> calls) {
  std::vector<std::span<const Access>> accesses;
  for (const KernelCall& call : calls) accesses.emplace_back(call.accesses);
  return accesses;
}

}  // namespace

LaunchGraph LaunchGraph::build(const Context& context, std::span<KernelCall> calls, GraphStats& stats) {
  const Timed timed(stats.add_s);
  const Driver& driver = context.driver();
  GraphHandle handle = nullptr;
  driver.call(driver.graph_create, &handle, 0u);
  Graph graph(driver, handle);
  const std::vector<std::span<const Access>> accesses = accesses_of(calls);
  const Edges edges = find_edges(accesses);
  std::vector<NodeHandle> nodes(calls.size()), sources;
  std::vector<void*> pointers;
  for (size_t i = 0; i < calls.size(); ++i) {
    sources.clear();
    for (int32_t source : edges.of(i)) sources.push_back(nodes[static_cast<size_t>(source)]);
    try {
      nodes[i] = add_node(context, handle, sources, calls[i], pointers);
    } catch (const Error& error) {
      ErrorFields fields = error.fields();
      fields.where = calls[i].place.text() + ", node " + std::to_string(i);
      throw Error(std::move(fields));
    }
  }
  stats.edges += static_cast<int64_t>(edges.sources.size());
  return {driver, std::move(graph), static_cast<int64_t>(calls.size())};
}

LaunchGraph LaunchGraph::capture(const Driver& driver, std::span<KernelCall> calls, StreamHandle stream,
                                 GraphStats& stats) {
  const Timed timed(stats.add_s);
  std::vector<void*> pointers;
  const auto end = [&](Result* result) {  // whatever it returns, a graph that it made is ours
    GraphHandle handle = nullptr;
    *result = driver.capture_end.address(stream, &handle);
    return Graph(driver, handle);
  };
  driver.call(driver.capture_begin, stream, CAPTURE_THREAD_LOCAL);
  Result ended = SUCCESS;
  try {
    launch_singly(driver, calls, pointers, stream);
  } catch (...) {
    end(&ended);  // the stream must leave capture; the first failure is the reason
    throw;
  }
  Graph graph = end(&ended);
  if (ended != SUCCESS) driver.fail(driver.capture_end.name, ended);
  return {driver, std::move(graph), static_cast<int64_t>(calls.size())};
}

void LaunchGraph::instantiate(GraphStats& stats) {
  const Timed timed(stats.instantiate_s);
  ExecutableHandle handle = nullptr;
  driver_->call(driver_->graph_instantiate, &handle, graph_.get(), 0ull);
  executable_ = Executable(*driver_, handle);
  graph_.reset();
  stats.graphs += 1;
  stats.nodes += nodes_;
}

void launch_singly(const Driver& driver, std::span<KernelCall> calls, std::vector<void*>& pointers,
                   StreamHandle stream) {
  for (KernelCall& call : calls) launch(driver, call, pointers, stream);
}

}  // namespace dsv41c::cuda
