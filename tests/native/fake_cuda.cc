// Entry points of the fake driver.
#include "fake_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

using Json = nlohmann::json;

namespace {

void violation(const std::string& text) { world().violations.push_back(text); }

// Counts and names a call; the result it must return at once, unless OK.
Result begin(const char* name, bool needs_context = true) {
  World& w = world();
  w.log.push_back(name);
  if (++w.calls == w.fail_at) return w.fail_with;
  if (needs_context && w.contexts.empty()) {
    violation(std::string(name) + " without a current context");
    return INVALID_CONTEXT;
  }
  return OK;
}

template <class T>
T* make(const char* kind, T* object) {
  world().live[object] = kind;
  return object;
}

bool is_live(const void* handle, const char* kind, const char* name) {
  const auto found = world().live.find(handle);
  if (found != world().live.end() && found->second == kind) return true;
  violation(std::string(name) + " with a handle that is no live " + kind);
  return false;
}

// A release does its work even when it reports a failure, as a real one does for failures of earlier work.
template <class T>
Result release(const char* name, const char* kind, T* object, bool needs_idle) {
  const Result result = begin(name);
  if (!is_live(object, kind, name)) return INVALID_HANDLE;
  if (needs_idle && !world().is_idle()) violation(std::string(name) + " while work is pending");
  world().live.erase(object);
  delete object;
  return result;
}

std::vector<uint64_t> read_values(const Kernel& kernel, void** parameters) {
  std::vector<uint64_t> values;
  for (size_t i = 0; i < kernel.letters.size(); ++i) {
    const bool is_wide = kernel.letters[i] == 'p' || kernel.letters[i] == 'l';
    uint64_t value = 0;
    if (kernel.letters[i] == 'm') {
      uint64_t map[16];
      std::memcpy(map, parameters[i], sizeof map);
      if (map[0] != MAP_MAGIC) violation("a parameter that is no tensor map");
      value = map[0] == MAP_MAGIC ? map[1] : 0;
    } else {
      std::memcpy(&value, parameters[i], is_wide ? 8 : 4);
    }
    values.push_back(value);
  }
  return values;
}

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

bool shape_fits(const Node& node) {
  return node.shared <= node.kernel->shared_limit && node.grid[0] * node.grid[1] * node.grid[2] > 0 &&
         node.block[0] * node.block[1] * node.block[2] <= 1024;
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

// A node of a stream's capture waits for the one before it; else the stream runs it.
Result start(void* stream, Node node) {
  if (Graph* graph = static_cast<Stream*>(stream)->capturing) {
    if (!graph->nodes.empty()) node.sources = {static_cast<int>(graph->nodes.size()) - 1};
    return graph->nodes.push_back(std::move(node)), OK;
  }
  world().enqueue(static_cast<Stream*>(stream), [node = std::move(node)] { run_node(node); });
  return OK;
}

Result add_node(const char* name, void** handle, void* graph, void* const* sources, size_t count, Node node) {
  if (!is_live(graph, "graph", name)) return INVALID_HANDLE;
  auto& nodes = static_cast<Graph*>(graph)->nodes;
  for (size_t i = 0; i < count; ++i)  // a node's handle is its number from 1
    node.sources.push_back(static_cast<int>(reinterpret_cast<intptr_t>(sources[i])) - 1);
  nodes.push_back(std::move(node));
  return *handle = reinterpret_cast<void*>(static_cast<intptr_t>(nodes.size())), OK;
}

Stream* as_stream(void* handle) { return static_cast<Stream*>(handle); }

Result copy(const char* name, void* to, const void* from, size_t bytes, void* stream) {
  if (const Result result = begin(name)) return result;
  if (!is_live(stream, "stream", name)) return INVALID_HANDLE;
  world().enqueue(as_stream(stream), [=] {
    std::memcpy(to, from, bytes);
    world().executed.push_back(name);
  });
  return OK;
}

template <class T>
Result fill(const char* name, unsigned long long address, size_t pitch, T value, size_t count, void* stream) {
  if (const Result result = begin(name)) return result;
  if (!is_live(stream, "stream", name)) return INVALID_HANDLE;
  world().enqueue(as_stream(stream), [=] {
    for (size_t i = 0; i < count; ++i) std::memcpy(reinterpret_cast<char*>(address) + i * pitch, &value, sizeof value);
    world().executed.push_back(name);
  });
  return OK;
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

EXPORT Result cuGetErrorName(Result result, const char** text) {
  *text = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                                  : "CUDA_ERROR_FAKE";
  return OK;
}
EXPORT Result cuGetErrorString(Result, const char** text) { return *text = "as the test wished", OK; }
EXPORT Result cuInit(unsigned) {
  if (const Result result = begin("cuInit", false)) return result;
  return world().devices > 0 ? OK : NO_DEVICE;
}
EXPORT Result cuDriverGetVersion(int* version) { return *version = 12040, begin("cuDriverGetVersion", false); }
EXPORT Result cuDeviceGetCount(int* count) { return *count = world().devices, begin("cuDeviceGetCount", false); }
EXPORT Result cuDeviceGet(int* device, int index) { return *device = index, begin("cuDeviceGet", false); }
EXPORT Result cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return begin("cuDeviceGetName", false);
}
EXPORT Result cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? world().major : attribute == 76 ? world().minor : -1;
  return begin("cuDeviceGetAttribute", false);
}

EXPORT Result cuDevicePrimaryCtxRetain(void** context, int) {
  if (const Result result = begin("cuDevicePrimaryCtxRetain", false)) return result;
  ++world().retained;
  return *context = &world(), OK;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int) {
  if (--world().retained == 0 && !world().live.empty()) violation("context released before what lives in it");
  return begin("cuDevicePrimaryCtxRelease", false);
}
EXPORT Result cuCtxPushCurrent_v2(void* context) {
  if (const Result result = begin("cuCtxPushCurrent", false)) return result;
  return world().contexts.push_back(context), OK;
}
EXPORT Result cuCtxPopCurrent_v2(void** context) {
  const Result result = begin("cuCtxPopCurrent");
  if (world().contexts.empty()) return INVALID_CONTEXT;
  *context = const_cast<void*>(world().contexts.back());
  return world().contexts.pop_back(), result;
}

EXPORT Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = static_cast<size_t>(world().memory);
  *free = static_cast<size_t>(world().memory - world().used());
  return begin("cuMemGetInfo");
}
EXPORT Result cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (const Result result = begin("cuMemAlloc")) return result;
  if (bytes == 0) return INVALID_VALUE;
  if (static_cast<int64_t>(bytes) > world().memory - world().used()) return OUT_OF_MEMORY;
  char* memory = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xA5, bytes);
  world().sizes[make("device memory", memory)] = static_cast<int64_t>(bytes);
  return *address = reinterpret_cast<unsigned long long>(memory), OK;
}
EXPORT Result cuMemFree_v2(unsigned long long address) {
  const Result result = begin("cuMemFree");
  void* memory = reinterpret_cast<void*>(address);
  if (!is_live(memory, "device memory", "cuMemFree")) return INVALID_HANDLE;
  if (!world().is_idle()) violation("cuMemFree while work is pending");
  world().live.erase(memory);
  world().sizes.erase(memory);
  return std::free(memory), result;
}
EXPORT Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const Result result = begin("cuMemHostAlloc")) return result;
  if (bytes == 0) return INVALID_VALUE;
  return *memory = make("pinned memory", std::malloc(bytes)), OK;
}
EXPORT Result cuMemFreeHost(void* memory) {
  const Result result = begin("cuMemFreeHost");
  if (!is_live(memory, "pinned memory", "cuMemFreeHost")) return INVALID_HANDLE;
  if (!world().is_idle()) violation("cuMemFreeHost while work is pending");
  world().live.erase(memory);
  return std::free(memory), result;
}
EXPORT Result cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  return copy("cuMemcpyHtoDAsync", reinterpret_cast<void*>(to), from, bytes, stream);
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  return copy("cuMemcpyDtoHAsync", to, reinterpret_cast<const void*>(from), bytes, stream);
}
EXPORT Result cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
  if (const Result result = begin("cuMemcpyDtoDAsync")) return result;
  if (!is_live(stream, "stream", "cuMemcpyDtoDAsync")) return INVALID_HANDLE;
  Node node;
  node.transfer = "copy", node.values = {to, from, bytes};
  return start(stream, std::move(node));
}
EXPORT Result cuMemsetD8Async(unsigned long long address, unsigned char value, size_t count, void* stream) {
  if (as_stream(stream)->capturing) {
    if (const Result result = begin("cuMemsetD8Async")) return result;
    Node node;
    node.transfer = "memset", node.values = {address, value, count};
    return start(stream, std::move(node));
  }
  return fill("cuMemsetD8Async", address, 1, value, count, stream);
}
EXPORT Result cuMemsetD16Async(unsigned long long address, unsigned short value, size_t count, void* stream) {
  return fill("cuMemsetD16Async", address, 2, value, count, stream);
}
EXPORT Result cuMemsetD32Async(unsigned long long address, unsigned value, size_t count, void* stream) {
  return fill("cuMemsetD32Async", address, 4, value, count, stream);
}
EXPORT Result cuMemsetD2D32Async(unsigned long long address, size_t pitch, unsigned value, size_t width, size_t height,
                                 void* stream) {
  if (width != 1) return INVALID_VALUE;
  return fill("cuMemsetD2D32Async", address, pitch, value, height, stream);
}

EXPORT Result cuStreamCreate(void** stream, unsigned) {
  if (const Result result = begin("cuStreamCreate")) return result;
  world().streams.push_back(make("stream", new Stream));
  return *stream = world().streams.back(), OK;
}
EXPORT Result cuStreamDestroy_v2(void* stream) {
  std::erase(world().streams, stream);
  return release("cuStreamDestroy", "stream", as_stream(stream), false);
}
EXPORT Result cuStreamSynchronize(void* stream) {
  const Result result = begin("cuStreamSynchronize");
  if (!is_live(stream, "stream", "cuStreamSynchronize")) return INVALID_HANDLE;
  return as_stream(stream)->run_until(as_stream(stream)->enqueued), result;
}
EXPORT Result cuStreamBeginCapture_v2(void* stream, int) {
  if (const Result result = begin("cuStreamBeginCapture")) return result;
  return as_stream(stream)->capturing = new Graph, OK;
}
EXPORT Result cuStreamEndCapture(void* stream, void** graph) {
  const Result result = begin("cuStreamEndCapture");
  *graph = make("graph", std::exchange(as_stream(stream)->capturing, nullptr));
  return result;
}

EXPORT Result cuEventCreate(void** event, unsigned) {
  if (const Result result = begin("cuEventCreate")) return result;
  return *event = make("event", new Event), OK;
}
EXPORT Result cuEventDestroy_v2(void* event) {
  return release("cuEventDestroy", "event", static_cast<Event*>(event), false);
}
EXPORT Result cuEventRecord(void* event, void* stream) {
  if (const Result result = begin("cuEventRecord")) return result;
  if (!is_live(event, "event", "cuEventRecord")) return INVALID_HANDLE;
  return static_cast<Event*>(event)->moment = as_stream(stream)->enqueued, OK;
}
EXPORT Result cuEventSynchronize(void* event) {
  if (const Result result = begin("cuEventSynchronize")) return result;
  if (!is_live(event, "event", "cuEventSynchronize")) return INVALID_HANDLE;
  for (Stream* stream : world().streams) stream->run_until(static_cast<Event*>(event)->moment);
  return OK;
}
EXPORT Result cuEventElapsedTime(float* ms, void* from, void* to) {
  *ms = static_cast<float>(static_cast<Event*>(to)->moment - static_cast<Event*>(from)->moment);
  return begin("cuEventElapsedTime");
}

EXPORT Result cuModuleLoadData(void** module, const void* image) {
  if (const Result result = begin("cuModuleLoadData")) return result;
  auto made = std::make_unique<Module>();
  std::istringstream lines(static_cast<const char*>(image));
  for (Kernel kernel; lines >> kernel.symbol >> kernel.letters;)
    made->kernels.push_back(std::make_unique<Kernel>(kernel));
  return *module = make("module", made.release()), OK;
}
EXPORT Result cuModuleUnload(void* module) {
  return release("cuModuleUnload", "module", static_cast<Module*>(module), true);
}
EXPORT Result cuModuleGetFunction(void** function, void* module, const char* symbol) {
  if (const Result result = begin("cuModuleGetFunction")) return result;
  for (const auto& kernel : static_cast<Module*>(module)->kernels)
    if (kernel->symbol == symbol) return *function = kernel.get(), OK;
  return NOT_FOUND;
}
EXPORT Result cuFuncSetAttribute(void* function, int attribute, int value) {
  if (const Result result = begin("cuFuncSetAttribute")) return result;
  auto* kernel = static_cast<Kernel*>(function);
  if (attribute != 8 || ++kernel->times_set > 1)
    violation("cuFuncSetAttribute more than once, or of another attribute");
  return kernel->shared_limit = static_cast<unsigned>(value), OK;
}
EXPORT Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, void* stream, void** parameters, void**) {
  if (const Result result = begin("cuLaunchKernel")) return result;
  const auto* kernel = static_cast<Kernel*>(function);
  Node node{kernel, {gx, gy, gz}, {bx, by, bz}, shared, read_values(*kernel, parameters), {}, {}};
  return shape_fits(node) ? start(stream, std::move(node)) : INVALID_VALUE;
}

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
