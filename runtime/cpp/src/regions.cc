// Resolves storage to addresses.
#include "regions.h"

#include <stdexcept>

namespace dsv41c {

namespace {

// Of a value whose first size is the method's rows; 0 of one that is not made of them.
int64_t row_bytes(const Method& method, const Value& value) {
  if (value.sizes.empty() || value.sizes[0].kind != Expr::Kind::symbol || value.sizes[0].symbol != method.symbol)
    return 0;
  return evaluate(value.strides[0], {}) * item_bytes(value.dtype);
}

}  // namespace

uint8_t* Regions::address(const Method& method, const Value& value, const Symbols& symbols, int64_t first) const {
  const int64_t index = value.storage.index;
  switch (value.storage.kind) {
    case StorageKind::arena:
      return arena + index;
    case StorageKind::io:
      return io + index;
    case StorageKind::state:
      return state + plan->state[static_cast<size_t>(index)].offset;
    case StorageKind::bridge: {
      const Bridge& bridge = plan->bridges[static_cast<size_t>(index)];
      const int64_t rows = bridge.is_of_flow() ? first : 0;
      return bridges + bridge.offset + (rows > 0 ? rows * row_bytes(method, value) : 0);
    }
    case StorageKind::weight:
      return weights[static_cast<size_t>(index)];
    case StorageKind::view:
      return address(method, method.values[static_cast<size_t>(index)], symbols, first) +
             evaluate(value.storage.offset, symbols) * item_bytes(value.dtype);
  }
  throw std::logic_error("storage kind");
}

dsv41c_tensor Regions::tensor(const Method& method, int64_t index, const RunRows& rows) const {
  const Symbols symbols{{method.symbol, rows.count}};
  const Value& value = method.values[static_cast<size_t>(index)];
  dsv41c_tensor t{};
  t.data = address(method, value, symbols, rows.first);
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

LaunchTensors::LaunchTensors(const Method& method, const Launch& launch, const RunRows& rows, const Regions& regions) {
  for (const Argument& argument : launch.tensors) {
    dsv41c_tensor absent{};
    absent.ndim = -1;
    tensors_.push_back(argument.kind == ArgumentKind::none ? absent : regions.tensor(method, argument.value, rows));
  }
  binding = {tensors_.data(), static_cast<int32_t>(tensors_.size()), -1, rows.count, nullptr, 0, nullptr};
  if (launch.scratch) {
    const dsv41c_tensor scratch = regions.tensor(method, *launch.scratch, rows);
    binding.scratch = scratch.data;
    binding.scratch_bytes = span_bytes(scratch);
  }
}

}  // namespace dsv41c
