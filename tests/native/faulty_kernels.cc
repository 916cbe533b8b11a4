// The product's own kernels with one fault: in front of provider "cpu", for launches of one entry, once a test asks.
#include <cstring>
#include <string>

#include "dsv41c/executor.h"

namespace {

enum Fault {
  NONE,
  WRITE_BEYOND_OUTPUT,
  WRITE_INPUT,
  WRITE_ELSEWHERE,
  READ_OUTPUT,
  READ_SCRATCH,
  READ_BEYOND_INPUT,
  READ_LAST_ROW,
  LEAVE_FIRST_ROW
};

constexpr int64_t ITEM_BYTES[] = {4, 2, 1, 1, 1, 1, 4, 8, 8, 1};  // by dsv41c_dtype

struct Kernel {
  std::string entry;
  void* real = nullptr;
};
struct Bound {
  const Kernel* kernel;
  void* real;
  dsv41c_tensor first, last;  // an input, and the output
  float* scratch;
};

std::string faulty_entry, order;
int32_t fault = NONE;
uint8_t* elsewhere = nullptr;

const dsv41c_provider& native() { return *dsv41c_cpu_provider(); }

int64_t row_bytes(const dsv41c_tensor& tensor) { return tensor.strides[0] * ITEM_BYTES[tensor.dtype]; }
uint8_t* row(const dsv41c_tensor& tensor, int64_t index) {
  return static_cast<uint8_t*>(tensor.data) + index * row_bytes(tensor);
}
float as_float(const void* at) {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string entry_of(const char* body) {
  const std::string text = body, key = "\"entry\":\"";
  const size_t begin = text.find(key) + key.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

int32_t prepare(const char* body, void** kernel, dsv41c_error* error) {
  auto* made = new Kernel{entry_of(body)};
  *kernel = made;
  return native().prepare(body, &made->real, error);
}

int32_t bind(void* kernel, const dsv41c_binding* binding, void** bound, dsv41c_error* error) {
  void* real = nullptr;
  if (native().bind(static_cast<Kernel*>(kernel)->real, binding, &real, error) != 0) return 1;
  *bound = new Bound{static_cast<Kernel*>(kernel), real, binding->tensors[0],
                     binding->tensors[binding->num_tensors - 1], static_cast<float*>(binding->scratch)};
  return 0;
}

float strange_term(const Bound& b) {
  if (fault == READ_OUTPUT) return as_float(b.last.data);
  if (fault == READ_SCRATCH) return *b.scratch;
  if (fault == READ_BEYOND_INPUT) return as_float(row(b.first, b.first.sizes[0]));
  if (fault == READ_LAST_ROW) return as_float(row(b.first, b.first.sizes[0] - 1));
  return 0;
}

int32_t launch(void* handle, dsv41c_error* error) {
  const Bound& b = *static_cast<Bound*>(handle);
  order += b.kernel->entry + " ";
  if (fault == NONE || b.kernel->entry != faulty_entry) return native().launch(b.real, error);
  const float term = strange_term(b);
  std::string first_row(row_bytes(b.last), '\0');
  std::memcpy(first_row.data(), b.last.data, first_row.size());
  if (native().launch(b.real, error) != 0) return 1;
  if (fault == WRITE_BEYOND_OUTPUT) ++*row(b.last, b.last.sizes[0]);
  if (fault == WRITE_INPUT) ++*row(b.first, 0);
  if (fault == WRITE_ELSEWHERE) ++*elsewhere;
  if (fault == LEAVE_FIRST_ROW) std::memcpy(b.last.data, first_row.data(), first_row.size());
  if (term != 0) *static_cast<float*>(b.last.data) += term;
  return 0;
}

void unbind(void* handle) {
  native().unbind(static_cast<Bound*>(handle)->real);
  delete static_cast<Bound*>(handle);
}

void release(void* handle) {
  if (static_cast<Kernel*>(handle)->real) native().release(static_cast<Kernel*>(handle)->real);
  delete static_cast<Kernel*>(handle);
}

void count_allocations(int32_t, dsv41c_allocations* counted) { *counted = {}; }

const dsv41c_provider PROVIDER = {DSV41C_PROVIDER_ABI, 0, "cpu", prepare, bind, launch, unbind, release,
                                  count_allocations};

}  // namespace

extern "C" {
__attribute__((visibility("default"))) const dsv41c_provider* faulty_provider() { return &PROVIDER; }
__attribute__((visibility("default"))) void faulty_set(const char* entry, int32_t kind, void* address) {
  faulty_entry = entry, fault = kind, elsewhere = static_cast<uint8_t*>(address), order.clear();
}
__attribute__((visibility("default"))) const char* faulty_order() { return order.c_str(); }
}
