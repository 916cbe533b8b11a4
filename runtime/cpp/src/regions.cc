// Resolves storage to addresses.
#include "regions.h"

#include <stdexcept>

namespace dsv41c {

uint8_t* Regions::address(const Method& method, const Value& value, const Symbols& symbols) const {
  const int64_t index = value.storage.index;
  switch (value.storage.kind) {
    case StorageKind::arena:
      return arena + index;
    case StorageKind::io:
      return io + index;
    case StorageKind::state:
      return state + plan->state[static_cast<size_t>(index)].offset;
    case StorageKind::bridge:
      return bridges + plan->bridges[static_cast<size_t>(index)].offset;
    case StorageKind::weight:
      return weights[static_cast<size_t>(index)];
    case StorageKind::view:
      return address(method, method.values[static_cast<size_t>(index)], symbols) +
             evaluate(value.storage.offset, symbols) * item_bytes(value.dtype);
  }
  throw std::logic_error("storage kind");
}

dsv41c_tensor Regions::tensor(const Method& method, int64_t index, const Symbols& symbols) const {
  const Value& value = method.values[static_cast<size_t>(index)];
  dsv41c_tensor t{};
  t.data = address(method, value, symbols);
  t.dtype = value.dtype;
  t.ndim = static_cast<int32_t>(value.sizes.size());
  for (size_t d = 0; d < value.sizes.size(); ++d) {
    t.sizes[d] = evaluate(value.sizes[d], symbols);
    t.strides[d] = evaluate(value.strides[d], symbols);
  }
  return t;
}

dsv41c_tensor contiguous_tensor(void* data, int32_t dtype, const std::vector<int64_t>& sizes) {
  dsv41c_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.ndim = static_cast<int32_t>(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) {
    t.sizes[d] = sizes[d];
    t.strides[d] = stride;
  }
  return t;
}

int64_t span_bytes(const dsv41c_tensor& tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.sizes[d] == 0) return 0;
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  return (last + 1) * item_bytes(tensor.dtype);
}

LaunchTensors::LaunchTensors(const Method& method, const Launch& launch, int64_t rows, const Regions& regions) {
  const Symbols symbols{{method.symbol, rows}};
  for (const Argument& argument : launch.tensors) {
    dsv41c_tensor absent{};
    absent.ndim = -1;
    tensors_.push_back(argument.kind == ArgumentKind::none ? absent : regions.tensor(method, argument.value, symbols));
  }
  binding = {tensors_.data(), static_cast<int32_t>(tensors_.size()), -1, rows, nullptr, 0, nullptr};
  if (launch.scratch) {
    const dsv41c_tensor scratch = regions.tensor(method, *launch.scratch, symbols);
    binding.scratch = scratch.data;
    binding.scratch_bytes = span_bytes(scratch);
  }
}

}  // namespace dsv41c
