// The aten provider: runs composites through torch's dispatcher, on the CPU or on a CUDA stream of the host.
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "composite.h"
#include "error.h"

namespace dsv41c::aten {
namespace {

// Every entry runs under InferenceMode (thread local): tensors made in it may be written only in it. The message
// is plain text: the executor knows the kernel's name and makes the typed error.
template <class F>
int32_t entry(dsv41c_error* error, F&& f) noexcept {
  try {
    c10::InferenceMode mode;
    f();
    return 0;
  } catch (const c10::Error& e) {
    write_error(error, std::string("aten: ") + e.what_without_backtrace());
  } catch (const std::exception& e) {
    write_error(error, std::string("aten: ") + e.what());
  } catch (...) {
    write_error(error, "aten: unknown exception");
  }
  return 1;
}

int32_t prepare(const char* body, void** kernel, dsv41c_error* error) {
  return entry(error, [&] { *kernel = new Composite(parse_composite(nlohmann::json::parse(body))); });
}

int32_t bind(void* kernel, const dsv41c_binding* binding, void** bound, dsv41c_error* error) {
  return entry(error, [&] { *bound = new BoundComposite(*static_cast<Composite*>(kernel), *binding); });
}

int32_t launch(void* bound, dsv41c_error* error) {
  return entry(error, [&] { static_cast<BoundComposite*>(bound)->launch(); });
}

void unbind(void* bound) {
  entry(nullptr, [&] { delete static_cast<BoundComposite*>(bound); });
}

void release(void* kernel) {
  entry(nullptr, [&] { delete static_cast<Composite*>(kernel); });
}

struct AllocationCounter : c10::MemoryReportingInfoBase {
  dsv41c_allocations counted{};
  void reportMemoryUsage(void*, int64_t size, size_t, size_t reserved, c10::Device device) override {
    if (device.is_cuda()) counted.pool_bytes = std::max(counted.pool_bytes, static_cast<int64_t>(reserved));
    if (size <= 0) return;  // negative sizes report a release
    counted.count += 1;
    counted.bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
};

thread_local std::shared_ptr<AllocationCounter> counter;

void count_allocations(int32_t enable, dsv41c_allocations* counted) {
  *counted = {};
  entry(nullptr, [&] {
    const auto slot = c10::DebugInfoKind::PROFILER_STATE;  // where the allocators look for a reporter
    if (counter) {
      c10::ThreadLocalDebugInfo::_pop(slot);
      *counted = counter->counted;
      counter.reset();
    }
    if (enable) {
      counter = std::make_shared<AllocationCounter>();
      c10::ThreadLocalDebugInfo::_push(slot, counter);
    }
  });
}

const dsv41c_provider PROVIDER = {DSV41C_PROVIDER_ABI, 0, "aten", prepare, bind, launch, unbind, release,
                                  count_allocations};

}  // namespace
}  // namespace dsv41c::aten

extern "C" {

__attribute__((visibility("default"))) const dsv41c_provider* dsv41c_aten_provider(void) {
  return &dsv41c::aten::PROVIDER;
}

// The torch that this library was compiled against; another one may lay out its classes differently.
__attribute__((visibility("default"))) const char* dsv41c_aten_torch_version(void) { return DSV41C_TORCH_VERSION; }
}
