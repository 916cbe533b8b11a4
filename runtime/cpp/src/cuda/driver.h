// The CUDA driver as far as the executor uses it: own declarations, so that no toolkit is needed to build, and a
// table of functions that is filled from the driver library at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsv41c::cuda {

// Names of the driver's types; handles are pointers to objects that only the driver knows.
using Result = int32_t;
using DeviceNumber = int32_t;
using Address = unsigned long long;  // of device memory
using ContextHandle = struct DriverContext*;
using ModuleHandle = struct DriverModule*;
using FunctionHandle = struct DriverFunction*;
using StreamHandle = struct DriverStream*;
using EventHandle = struct DriverEvent*;
using GraphHandle = struct DriverGraph*;
using NodeHandle = struct DriverGraphNode*;
using ExecutableHandle = struct DriverGraphExec*;

inline constexpr Result SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100;
inline constexpr int32_t COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76;  // device attributes
inline constexpr int32_t MAX_DYNAMIC_SHARED_BYTES = 8;                                  // function attribute
inline constexpr unsigned STREAM_NON_BLOCKING = 1, EVENT_DEFAULT = 0, EVENT_DISABLE_TIMING = 2;
inline constexpr int32_t CAPTURE_THREAD_LOCAL = 1;

// CUDA_KERNEL_NODE_PARAMS, second version.
struct KernelNodeParams {
  FunctionHandle function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  ContextHandle context;
};

inline constexpr int32_t MEMORY_DEVICE = 2;

// One side of CUDA_MEMCPY3D, and the whole, second version. A copy of bytes is one row.
struct CopyPlace {
  size_t x_bytes, y, z, lod;
  int32_t memory;
  void* host;
  Address device;
  void *array, *reserved;
  size_t pitch, height;
};
struct CopyParams {
  CopyPlace source, target;
  size_t width_bytes, height, depth;
};
static_assert(sizeof(CopyPlace) == 88 && sizeof(CopyParams) == 200);

// CUDA_MEMSET_NODE_PARAMS, first version.
struct MemsetParams {
  Address target;
  size_t pitch;  // unused with one row
  unsigned value;
  unsigned element_bytes;
  size_t width, height;  // elements of a row, rows
};

// CUtensorMap.
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

template <class... Parameters>
struct Function {
  const char* name;  // as the library exports it
  Result (*address)(Parameters...) = nullptr;
};

// Symbols carry the version whose signature is declared here: a later driver keeps them.
class Driver {
 public:
  // E0704 when the library cannot be opened or lacks a function. It is never closed: the driver keeps threads.
  explicit Driver(const std::string& library);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Calls a function and throws what fail() makes when it does not succeed.
  template <class... Parameters, class... Arguments>
  void call(const Function<Parameters...>& function, Arguments... arguments) const {
    if (const Result result = function.address(arguments...); result != SUCCESS) fail(function.name, result);
  }
  // Error code of a failing call: E0703 while loading, E0802 from then on; out of memory while loading is E0701.
  void loaded() { is_loading_ = false; }
  std::string_view code() const;
  [[noreturn]] void fail(const char* name, Result result) const;
  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory"
  std::string describe(const char* name, Result result) const;
  const std::string& library() const { return library_; }

  Function<Result, const char**> error_name{"cuGetErrorName"};
  Function<Result, const char**> error_string{"cuGetErrorString"};
  Function<unsigned> init{"cuInit"};
  Function<int*> version{"cuDriverGetVersion"};
  Function<int*> device_count{"cuDeviceGetCount"};
  Function<DeviceNumber*, int> device_get{"cuDeviceGet"};
  Function<char*, int, DeviceNumber> device_name{"cuDeviceGetName"};
  Function<int*, int32_t, DeviceNumber> device_attribute{"cuDeviceGetAttribute"};
  Function<ContextHandle*, DeviceNumber> context_retain{"cuDevicePrimaryCtxRetain"};
  Function<DeviceNumber> context_release{"cuDevicePrimaryCtxRelease_v2"};
  Function<ContextHandle> context_push{"cuCtxPushCurrent_v2"};
  Function<ContextHandle*> context_pop{"cuCtxPopCurrent_v2"};
  Function<size_t*, size_t*> memory_info{"cuMemGetInfo_v2"};
  Function<Address*, size_t> memory_allocate{"cuMemAlloc_v2"};
  Function<Address> memory_free{"cuMemFree_v2"};
  Function<void**, size_t, unsigned> pinned_allocate{"cuMemHostAlloc"};
  Function<void*> pinned_free{"cuMemFreeHost"};
  Function<Address, const void*, size_t, StreamHandle> copy_in_async{"cuMemcpyHtoDAsync_v2"};
  Function<void*, Address, size_t, StreamHandle> copy_out_async{"cuMemcpyDtoHAsync_v2"};
  Function<Address, Address, size_t, StreamHandle> copy_async{"cuMemcpyDtoDAsync_v2"};  // to, from
  Function<Address, unsigned char, size_t, StreamHandle> fill_8{"cuMemsetD8Async"};
  Function<Address, unsigned short, size_t, StreamHandle> fill_16{"cuMemsetD16Async"};
  Function<Address, unsigned, size_t, StreamHandle> fill_32{"cuMemsetD32Async"};
  // address, pitch in bytes, word, words in a row, rows
  Function<Address, size_t, unsigned, size_t, size_t, StreamHandle> fill_32_strided{"cuMemsetD2D32Async"};
  Function<StreamHandle*, unsigned> stream_create{"cuStreamCreate"};
  Function<StreamHandle> stream_destroy{"cuStreamDestroy_v2"};
  Function<StreamHandle> stream_synchronize{"cuStreamSynchronize"};
  Function<StreamHandle, int32_t> capture_begin{"cuStreamBeginCapture_v2"};
  Function<StreamHandle, GraphHandle*> capture_end{"cuStreamEndCapture"};
  Function<EventHandle*, unsigned> event_create{"cuEventCreate"};
  Function<EventHandle> event_destroy{"cuEventDestroy_v2"};
  Function<EventHandle, StreamHandle> event_record{"cuEventRecord"};
  Function<EventHandle> event_synchronize{"cuEventSynchronize"};
  Function<float*, EventHandle, EventHandle> event_elapsed{"cuEventElapsedTime"};
  Function<ModuleHandle*, const void*> module_load{"cuModuleLoadData"};
  Function<ModuleHandle> module_unload{"cuModuleUnload"};
  Function<FunctionHandle*, ModuleHandle, const char*> module_function{"cuModuleGetFunction"};
  Function<FunctionHandle, int32_t, int> function_set{"cuFuncSetAttribute"};
  // function, grid x y z, block x y z, shared bytes, stream, parameters, extra
  Function<FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle, void**,
           void**>
      launch{"cuLaunchKernel"};
  Function<GraphHandle*, unsigned> graph_create{"cuGraphCreate"};
  Function<GraphHandle> graph_destroy{"cuGraphDestroy"};
  Function<NodeHandle*, GraphHandle, const NodeHandle*, size_t, const KernelNodeParams*> graph_add_kernel{
      "cuGraphAddKernelNode_v2"};
  Function<NodeHandle*, GraphHandle, const NodeHandle*, size_t, const CopyParams*, ContextHandle> graph_add_copy{
      "cuGraphAddMemcpyNode"};
  Function<NodeHandle*, GraphHandle, const NodeHandle*, size_t, const MemsetParams*, ContextHandle> graph_add_memset{
      "cuGraphAddMemsetNode"};
  // map, data type, rank, address, sizes, strides in bytes, box, element strides, interleave, swizzle, promotion, fill
  Function<TensorMap*, int32_t, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*,
           int32_t, int32_t, int32_t, int32_t>
      encode_map{"cuTensorMapEncodeTiled"};
  Function<ExecutableHandle*, GraphHandle, unsigned long long> graph_instantiate{"cuGraphInstantiateWithFlags"};
  Function<ExecutableHandle> executable_destroy{"cuGraphExecDestroy"};
  Function<ExecutableHandle, StreamHandle> graph_upload{"cuGraphUpload"};
  Function<ExecutableHandle, StreamHandle> graph_launch{"cuGraphLaunch"};

 private:
  template <class... Parameters>
  void resolve(void* library, Function<Parameters...>& function);

  std::string library_;
  bool is_loading_ = true;
};

}  // namespace dsv41c::cuda
