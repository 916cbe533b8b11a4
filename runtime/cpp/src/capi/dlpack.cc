#include "capi/dlpack.h"

#include <memory>

#include "dsv41c/plan_generated.h"
#include "error.h"

// DLPack 1.0, by its published layout.
struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t type_code, type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // elements; null where the tensor is contiguous
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DlTensor tensor;
};
static_assert(sizeof(DlTensor) == 48 && sizeof(DLManagedTensorVersioned) == 80, "the layout of a 64-bit machine");

namespace dsv41c::capi {
namespace {

constexpr int32_t CPU = 1, CUDA_HOST = 3;
constexpr uint8_t INT = 0, FLOAT = 2;

void need(bool holds, const std::string& name, const char* what, const std::string& found, const std::string& needed) {
  if (holds) return;
  throw Error({.code = plan_format::E0801,
               .subject = std::string(what) + " of tensor " + name,
               .found = found,
               .needed = needed,
               .action = "correct the tensor; no state was changed"});
}

template <class T>
struct Owned {
  DLManagedTensorVersioned managed{};
  std::vector<T> items;
  std::vector<int64_t> shape, strides;
};

template <class T>
DLManagedTensorVersioned* make(std::vector<T> items, std::vector<int64_t> shape, uint8_t code) {
  auto owned = std::make_unique<Owned<T>>();
  owned->items = std::move(items);
  owned->shape = std::move(shape);
  owned->strides.assign(owned->shape.size(), 1);
  for (size_t d = owned->shape.size(); d-- > 1;) owned->strides[d - 1] = owned->strides[d] * owned->shape[d];
  owned->managed = {1,
                    0,
                    owned.get(),
                    [](DLManagedTensorVersioned* self) { delete static_cast<Owned<T>*>(self->context); },
                    0,
                    {owned->items.data(), CPU, 0, static_cast<int32_t>(owned->shape.size()), code, 32, 1,
                     owned->shape.data(), owned->strides.data(), 0}};
  return &owned.release()->managed;
}

}  // namespace

std::span<const int32_t> int32_vector(const DLManagedTensorVersioned* pointer, const std::string& name) {
  need(pointer != nullptr, name, "pointer", "null", "a DLManagedTensorVersioned");
  need(pointer->major == 1, name, "DLPack version",
       std::to_string(pointer->major) + "." + std::to_string(pointer->minor), "1.x");
  const DlTensor& tensor = pointer->tensor;
  need(tensor.device_type == CPU || tensor.device_type == CUDA_HOST, name, "device",
       "device type " + std::to_string(tensor.device_type), "1 (CPU)");
  need(tensor.type_code == INT && tensor.type_bits == 32 && tensor.type_lanes == 1, name, "dtype",
       "code " + std::to_string(tensor.type_code) + ", " + std::to_string(tensor.type_bits) + " bits, " +
           std::to_string(tensor.type_lanes) + " lanes",
       "int32: code 0, 32 bits, 1 lane");
  need(tensor.ndim == 1 && tensor.shape, name, "shape", std::to_string(tensor.ndim) + " dimensions", "one dimension");
  const int64_t count = tensor.shape[0];
  need(count >= 0 && count <= INT32_MAX, name, "shape", std::to_string(count), "a number of elements");
  if (count == 0) return {};
  need(!tensor.strides || tensor.strides[0] == 1 || count == 1, name, "stride",
       std::to_string(tensor.strides ? tensor.strides[0] : 1), "1: contiguous elements");
  need(tensor.data != nullptr, name, "data", "null", "the address of " + std::to_string(count) + " elements");
  const auto address = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  need(address % alignof(int32_t) == 0, name, "alignment", "an address of " + std::to_string(address % 4) + " modulo 4",
       "a multiple of 4");
  return {reinterpret_cast<const int32_t*>(address), static_cast<size_t>(count)};
}

DLManagedTensorVersioned* new_tensor(std::vector<float> items, std::vector<int64_t> shape) {
  return make(std::move(items), std::move(shape), FLOAT);
}

DLManagedTensorVersioned* new_tensor(std::vector<int32_t> items, std::vector<int64_t> shape) {
  return make(std::move(items), std::move(shape), INT);
}

}  // namespace dsv41c::capi
