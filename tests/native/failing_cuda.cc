// In front of a CUDA driver: counts the calls that allocate or create, and fails the n-th. All other functions are
// found in the driver behind it, which this library is linked to by its name.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int64_t calls = 0, fail_at = 0;
int fail_with = 2;

template <class... Arguments>
int forward(const char* name, Arguments... arguments) {
  if (++calls == fail_at) return fail_with;
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name))(arguments...);
}

}  // namespace

// From here on; 0 fails none.
EXPORT void failing_cuda_set(int64_t n, int result) { calls = 0, fail_at = n, fail_with = result; }
EXPORT int64_t failing_cuda_calls() { return calls; }

EXPORT int cuMemAlloc_v2(unsigned long long* address, size_t bytes) { return forward("cuMemAlloc_v2", address, bytes); }
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return forward("cuMemHostAlloc", memory, bytes, flags);
}
EXPORT int cuStreamCreate(void** stream, unsigned flags) { return forward("cuStreamCreate", stream, flags); }
EXPORT int cuEventCreate(void** event, unsigned flags) { return forward("cuEventCreate", event, flags); }
EXPORT int cuModuleLoadData(void** module, const void* image) { return forward("cuModuleLoadData", module, image); }
EXPORT int cuGraphCreate(void** graph, unsigned flags) { return forward("cuGraphCreate", graph, flags); }
EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  return forward("cuGraphInstantiateWithFlags", executable, graph, flags);
}
EXPORT int cuGraphUpload(void* executable, void* stream) { return forward("cuGraphUpload", executable, stream); }
