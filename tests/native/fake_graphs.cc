// Entry points of the fake driver for graphs and tensor maps.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fake_calls.h"

namespace fake {

using Json = nlohmann::json;

namespace {

Json node_json(const Node& node) {
  return {{"symbol", node.kernel ? node.kernel->symbol : node.transfer},
          {"grid", node.grid},
          {"block", node.block},
          {"shared", node.shared},
          {"values", node.values},
          {"sources", node.sources}};
}

// Among the nodes that may run, always the youngest: an edge that is missing changes what comes out.
void run_graph(const std::vector<Node>& nodes) {
  std::vector<bool> done(nodes.size());
  for (size_t count = 0; count < nodes.size(); ++count)
    for (size_t i = nodes.size(); i-- > 0;)
      if (!done[i] && std::ranges::all_of(nodes[i].sources, [&](int source) { return done[source]; })) {
        run_node(nodes[i]);
        done[i] = true;
        break;
      }
}

// The documented limits, as the driver checks them.
bool map_fits(const EncodedMap& map, size_t rank) {
  constexpr int ITEM[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  const unsigned unit = map.interleave == 2 ? 32 : 16;
  const auto inner = map.box[0] * static_cast<unsigned>(ITEM[map.type]);
  bool fits = rank >= 1 && rank <= 5 && map.address % unit == 0;
  for (uint64_t size : map.sizes) fits &= size >= 1 && size <= (uint64_t{1} << 32);
  for (uint64_t stride : map.strides) fits &= stride % unit == 0 && stride < (uint64_t{1} << 40);
  for (unsigned size : map.box) fits &= size >= 1 && size <= 256;
  for (unsigned step : map.steps) fits &= step >= 1 && step <= 8;
  if (map.interleave != 0) return fits && rank >= 3 && (map.interleave != 2 || map.swizzle == 1);
  return fits && inner % 16 == 0 && (map.swizzle == 0 || inner <= 16u << map.swizzle);
}

Result add_node(const char* name, void** handle, void* graph, void* const* sources, size_t count, Node node) {
  if (!is_live(graph, "graph", name)) return INVALID_HANDLE;
  auto& nodes = static_cast<Graph*>(graph)->nodes;
  for (size_t i = 0; i < count; ++i)  // a node's handle is its number from 1
    node.sources.push_back(static_cast<int>(reinterpret_cast<intptr_t>(sources[i])) - 1);
  nodes.push_back(std::move(node));
  return *handle = reinterpret_cast<void*>(static_cast<intptr_t>(nodes.size())), OK;
}

struct KernelNodeParams {  // as the driver's documentation lays it out
  Kernel* function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
};
struct CopySide {
  size_t x, y, z, lod;
  int memory;
  const void* host;
  unsigned long long device;
  void *array, *reserved;
  size_t pitch, height;
};
struct CopyParams {
  CopySide source, target;
  size_t width, height, depth;
};
struct MemsetParams {
  unsigned long long target;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};

}  // namespace
}  // namespace fake

using namespace fake;

EXPORT Result cuGraphCreate(void** graph, unsigned) {
  if (const Result result = begin("cuGraphCreate")) return result;
  return *graph = make("graph", new Graph), OK;
}
EXPORT Result cuGraphDestroy(void* graph) {
  return release("cuGraphDestroy", "graph", static_cast<Graph*>(graph), false);
}
EXPORT Result cuGraphAddKernelNode_v2(void** handle, void* graph, void* const* sources, size_t count,
                                      const KernelNodeParams* given) {
  if (const Result result = begin("cuGraphAddKernelNode")) return result;
  Node node{given->function, {}, {}, given->shared, read_values(*given->function, given->parameters), {}, {}};
  std::copy_n(given->grid, 3, node.grid);
  std::copy_n(given->block, 3, node.block);
  if (!shape_fits(node)) return INVALID_VALUE;
  return add_node("cuGraphAddKernelNode", handle, graph, sources, count, std::move(node));
}
EXPORT Result cuGraphAddMemcpyNode(void** handle, void* graph, void* const* sources, size_t count,
                                   const CopyParams* given, void* context) {
  if (const Result result = begin("cuGraphAddMemcpyNode")) return result;
  const auto is_row = [&](const CopySide& side) {
    return side.memory == 2 && side.pitch >= given->width && side.pitch <= INT32_MAX && !side.host && !side.array &&
           !side.reserved && side.x == 0 && side.y == 0 && side.z == 0 && side.lod == 0;
  };
  const bool fits = context == &world() && is_row(given->source) && is_row(given->target) && given->width > 0 &&
                    given->height == 1 && given->depth == 1;
  if (!fits) return INVALID_VALUE;
  Node node;
  node.transfer = "copy", node.values = {given->target.device, given->source.device, given->width};
  return add_node("cuGraphAddMemcpyNode", handle, graph, sources, count, std::move(node));
}
EXPORT Result cuGraphAddMemsetNode(void** handle, void* graph, void* const* sources, size_t count,
                                   const MemsetParams* given, void* context) {
  if (const Result result = begin("cuGraphAddMemsetNode")) return result;
  const bool fits = context == &world() && given->element_bytes == 1 && given->height == 1 && given->width > 0;
  if (!fits) return INVALID_VALUE;
  Node node;
  node.transfer = "memset", node.values = {given->target, given->value, given->width};
  return add_node("cuGraphAddMemsetNode", handle, graph, sources, count, std::move(node));
}
EXPORT Result cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
                                     const uint64_t* strides, const unsigned* box, const unsigned* steps,
                                     int interleave, int swizzle, int promotion, int fill) {
  if (const Result result = begin("cuTensorMapEncodeTiled")) return result;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || rank < 1 || rank > 5) return INVALID_VALUE;
  EncodedMap encoded{
      type, interleave, swizzle, promotion, fill, reinterpret_cast<uint64_t>(address), {sizes, sizes + rank},
      {},   {},         {}};
  encoded.strides.assign(strides, strides + rank - 1);
  encoded.box.assign(box, box + rank), encoded.steps.assign(steps, steps + rank);
  if (!map_fits(encoded, rank)) return INVALID_VALUE;
  const uint64_t words[16] = {MAP_MAGIC, world().maps.size()};
  std::memcpy(map, words, sizeof words);
  return world().maps.push_back(std::move(encoded)), OK;
}
EXPORT Result cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  if (const Result result = begin("cuGraphInstantiate")) return result;
  if (!is_live(graph, "graph", "cuGraphInstantiate")) return INVALID_HANDLE;
  const auto& nodes = static_cast<Graph*>(graph)->nodes;
  Json all = Json::array();
  for (const Node& node : nodes) all.push_back(node_json(node));
  world().graphs.push_back(all.dump());
  world().graph_bytes += 2500 * static_cast<int64_t>(nodes.size());
  return *executable = make("executable", new Executable{nodes}), OK;
}
EXPORT Result cuGraphExecDestroy(void* handle) {
  auto* executable = static_cast<Executable*>(handle);
  if (world().live.contains(handle)) world().graph_bytes -= 2500 * static_cast<int64_t>(executable->nodes.size());
  return release("cuGraphExecDestroy", "executable", executable, true);
}
EXPORT Result cuGraphUpload(void* executable, void*) {
  if (const Result result = begin("cuGraphUpload")) return result;
  return is_live(executable, "executable", "cuGraphUpload") ? OK : INVALID_HANDLE;
}
EXPORT Result cuGraphLaunch(void* executable, void* stream) {
  if (const Result result = begin("cuGraphLaunch")) return result;
  if (!is_live(executable, "executable", "cuGraphLaunch")) return INVALID_HANDLE;
  const auto* nodes = &static_cast<Executable*>(executable)->nodes;
  return world().enqueue(as_stream(stream), [nodes] { run_graph(*nodes); }), OK;
}
