// Entry points of the fake driver but those of graphs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "fake_calls.h"

namespace fake {

namespace {

// A node of a stream's capture waits for the one before it; else the stream runs it.
Result start(void* stream, Node node) {
  if (Graph* graph = static_cast<Stream*>(stream)->capturing) {
    if (!graph->nodes.empty()) node.sources = {static_cast<int>(graph->nodes.size()) - 1};
    return graph->nodes.push_back(std::move(node)), OK;
  }
  world().enqueue(static_cast<Stream*>(stream), [node = std::move(node)] { run_node(node); });
  return OK;
}

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
