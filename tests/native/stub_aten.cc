// A provider named "aten" for tests without torch: whatever the composite says, its launch enqueues out = in + 1 on
// the fake driver's stream, for tensors[0] and tensors[1].
#include <cstdio>
#include <string>

#include "dsv41c/provider.h"
#include "fake_cuda.h"

namespace {

struct Bound {
  const float* in;
  float* out;
  int64_t count;
  fake::Stream* stream;
};
bool counting = false, fails = false;
int64_t launches = 0, live = 0;

int32_t prepare(const char*, void** kernel, dsv41c_error*) { return *kernel = new int(0), ++live, 0; }
int32_t bind(void*, const dsv41c_binding* binding, void** bound, dsv41c_error* error) {
  if (binding->device != 0 || !binding->stream) {
    std::snprintf(error->text, static_cast<size_t>(error->capacity), "no CUDA device in the binding");
    return 1;
  }
  const dsv41c_tensor& out = binding->tensors[1];
  int64_t count = 1;
  for (int d = 0; d < out.ndim; ++d) count *= out.sizes[d];
  *bound = new Bound{static_cast<const float*>(binding->tensors[0].data), static_cast<float*>(out.data), count,
                     static_cast<fake::Stream*>(binding->stream)};
  return ++live, 0;
}
int32_t launch(void* handle, dsv41c_error* error) {
  if (fails) {
    std::snprintf(error->text, static_cast<size_t>(error->capacity), "as the test wished");
    return 1;
  }
  if (fake::world().contexts.empty()) fake::world().violations.push_back("aten launch without a current context");
  launches += counting;
  const Bound bound = *static_cast<Bound*>(handle);
  fake::world().enqueue(bound.stream, [bound] {
    for (int64_t i = 0; i < bound.count; ++i) bound.out[i] = bound.in[i] + 1;
    fake::world().executed.push_back("aten");
  });
  return 0;
}
void unbind(void* bound) { delete static_cast<Bound*>(bound), --live; }
void release(void* kernel) { delete static_cast<int*>(kernel), --live; }
void count_allocations(int32_t enable, dsv41c_allocations* counted) {
  *counted = {enable ? 0 : launches, enable ? 0 : 512 * launches, enable ? 0 : 4096};
  launches = 0;
  counting = enable;
}

const dsv41c_provider PROVIDER = {DSV41C_PROVIDER_ABI, 0, "aten", prepare, bind, launch, unbind, release,
                                  count_allocations};

}  // namespace

extern "C" {
__attribute__((visibility("default"))) const dsv41c_provider* stub_aten_provider() { return &PROVIDER; }
__attribute__((visibility("default"))) int64_t stub_aten_live() { return live; }
__attribute__((visibility("default"))) void stub_aten_reset() { fails = false, counting = false, launches = live = 0; }
__attribute__((visibility("default"))) void stub_aten_fail(int32_t enable) { fails = enable; }
}
