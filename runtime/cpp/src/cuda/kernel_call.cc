// Evaluates the expressions of a CUDA body, lays its parameters out and encodes its tensor maps.
#include "cuda/kernel_call.h"

#include <bit>

namespace dsv41c::cuda {
namespace {

static_assert(std::endian::native == std::endian::little);  // a narrow parameter is the low bytes of its 8

Access access_of(const Operands::Operand& operand) {
  // What a kernel writes it may read again in a later call of the same body.
  const bool is_written = operand.kind != ArgumentKind::in;
  const Extent& extent = operand.extent;
  return {extent.address, extent.address + static_cast<Address>(extent.bytes), true, is_written};
}

// CUtensorMapDataType; types of one byte move as they are.
int32_t map_type(int32_t dtype) {
  switch (dtype) {
    case DSV41C_INT32:
      return 3;
    case DSV41C_INT64:
      return 5;
    case DSV41C_FLOAT32:
      return 7;
    case DSV41C_FLOAT64:
      return 8;
    case DSV41C_BFLOAT16:
      return 9;
    default:
      return 0;
  }
}

class Parameters {
 public:
  Parameters(const Driver& driver, const Operands& operands, const Symbols& symbols, KernelCall& call)
      : driver_(driver), operands_(operands), symbols_(symbols), call_(call) {}

  void add(const Param& param) {
    switch (param.kind) {
      case ParamKind::tensor:
        return add_tensor(operands_.tensors[static_cast<size_t>(param.tensor)]);
      case ParamKind::scratch:
        return add_scratch(evaluate(param.value, symbols_));
      case ParamKind::int32:
        return push(static_cast<uint32_t>(evaluate(param.value, symbols_)));
      case ParamKind::int64:
        return push(static_cast<uint64_t>(evaluate(param.value, symbols_)));
      case ParamKind::float_:
        return push(std::bit_cast<uint32_t>(param.number));
      case ParamKind::tensor_map:
        return add_map(param);
    }
  }

  // Of a copy or memset: the bytes from there on are read or written, and nothing else.
  Address add_operand(const Param& pointer, bool is_written) {
    const bool is_tensor = pointer.is_tensor();
    const Extent& extent =
        is_tensor ? operands_.tensors[static_cast<size_t>(pointer.tensor)].extent : operands_.scratch;
    const Address begin = extent.address + (is_tensor ? 0 : static_cast<Address>(evaluate(pointer.value, symbols_)));
    if (!extent.is_weight)
      call_.accesses.push_back({begin, begin + static_cast<Address>(call_.bytes), !is_written, is_written});
    return begin;
  }

 private:
  void push(uint64_t value) { call_.values.push_back(value); }

  void add_tensor(const Operands::Operand& operand) {
    if (operand.kind == ArgumentKind::none) return push(0);
    push(operand.extent.address);
    if (!operand.extent.is_weight) call_.accesses.push_back(access_of(operand));
  }

  void add_scratch(int64_t offset) {
    const Extent& scratch = operands_.scratch;
    if (scratch.address == 0) return push(0);  // a kernel without scratch bytes
    push(scratch.address + static_cast<Address>(offset));
    call_.accesses.push_back({scratch.address, scratch.address + static_cast<Address>(scratch.bytes), true, true});
  }

  void add_map(const Param& param) {
    if (param.map.is_scratch)
      add_scratch(evaluate(param.value, symbols_));
    else
      add_tensor(operands_.tensors[static_cast<size_t>(param.tensor)]);
    const TensorMapRecipe& recipe = param.map;
    const auto evaluated = [&](const std::vector<Expr>& expressions) {
      std::vector<uint64_t> result;
      for (const Expr& each : expressions) result.push_back(static_cast<uint64_t>(evaluate(each, symbols_)));
      return result;
    };
    std::vector<uint64_t> sizes = evaluated(recipe.sizes), strides = evaluated(recipe.strides);
    strides.push_back(0);  // not read: one dimension has no stride, and the pointer is not null
    const std::vector<uint32_t> box(recipe.box.begin(), recipe.box.end());
    const std::vector<uint32_t> steps(recipe.element_strides.begin(), recipe.element_strides.end());
    TensorMap& map = call_.maps.emplace_back();
    call_.map_parameters.push_back(call_.values.size() - 1);
    driver_.call(driver_.encode_map, &map, map_type(recipe.dtype), static_cast<uint32_t>(sizes.size()),
                 reinterpret_cast<void*>(call_.values.back()), sizes.data(), strides.data(), box.data(), steps.data(),
                 recipe.interleave, recipe.swizzle, recipe.l2_promotion, recipe.oob_fill);
  }

  const Driver& driver_;
  const Operands& operands_;
  const Symbols& symbols_;
  KernelCall& call_;
};

}  // namespace

KernelNodeParams KernelCall::parameters(std::vector<void*>& pointers) {
  pointers.clear();
  for (uint64_t& value : values) pointers.push_back(&value);
  for (size_t i = 0; i < maps.size(); ++i) pointers[map_parameters[i]] = &maps[i];
  KernelNodeParams result = shape;
  result.parameters = pointers.data();
  return result;
}

CopyParams KernelCall::copy_params() const {
  const auto place = [&](Address address) {
    CopyPlace result{};
    result.memory = MEMORY_DEVICE;
    result.device = address;
    result.pitch = static_cast<size_t>(bytes);
    result.height = 1;
    return result;
  };
  return {place(source), place(target), static_cast<size_t>(bytes), 1, 1};
}

MemsetParams KernelCall::memset_params() const { return {target, 0, value, 1, static_cast<size_t>(bytes), 1}; }

ValueTable::ValueTable(const Method& method, const RunRows& rows, const Regions& regions) {
  entries_.reserve(method.values.size());
  for (size_t i = 0; i < method.values.size(); ++i) {
    const Storage& storage = method.values[i].storage;
    const dsv41c_tensor tensor = regions.tensor(method, static_cast<int64_t>(i), rows);
    const bool is_weight = storage.kind == StorageKind::view ? entries_[static_cast<size_t>(storage.index)].is_weight
                                                             : storage.kind == StorageKind::weight;
    entries_.push_back({reinterpret_cast<Address>(tensor.data), span_bytes(tensor), is_weight});
  }
}

Operands operands_of(const Launch& launch, const ValueTable& values) {
  Operands operands;
  operands.tensors.reserve(launch.tensors.size());
  for (const Argument& argument : launch.tensors)
    operands.tensors.push_back(
        {argument.kind, argument.kind == ArgumentKind::none ? Extent{} : values[argument.value]});
  if (launch.scratch) operands.scratch = values[*launch.scratch];
  return operands;
}

Operands operands_of(const Launch& launch, const Part& part, const dsv41c_binding& binding,
                     const SequenceTensors& tensors, const ValueTable& values) {
  Operands operands;
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    Operands::Operand operand{part.tensors[i].kind, {}};
    if (operand.kind != ArgumentKind::none) {
      const int64_t argument = tensors.argument(part.tensors[i].value);
      const dsv41c_tensor& tensor = binding.tensors[i];
      operand.extent = {reinterpret_cast<Address>(tensor.data), span_bytes(tensor),
                        argument >= 0 && values[launch.tensors[static_cast<size_t>(argument)].value].is_weight};
    }
    operands.tensors.push_back(operand);
  }
  operands.scratch = {reinterpret_cast<Address>(binding.scratch), binding.scratch_bytes, false};
  return operands;
}

void append_calls(const Kernel& kernel, const Operands& operands, const LaunchPlace& place,
                  const FunctionTable& functions, std::vector<KernelCall>& calls) {
  const Symbols symbols{{std::string(plan_format::ROWS), place.rows}};
  for (const CudaLaunch& each : kernel.launches) {
    KernelCall& call = calls.emplace_back();
    call.kind = each.kind;
    call.place = place;
    Parameters parameters(functions.driver(), operands, symbols, call);
    if (each.kind != NodeKind::kernel) {
      call.bytes = evaluate(each.bytes, symbols);
      call.value = static_cast<uint8_t>(each.value);
      call.target = parameters.add_operand(each.target, true);
      if (each.kind == NodeKind::copy) call.source = parameters.add_operand(each.source, false);
      continue;
    }
    call.shape.function = functions.find(each.cubin, each.symbol);
    for (size_t i = 0; i < 3; ++i) {
      call.shape.grid[i] = static_cast<unsigned>(evaluate(each.grid[i], symbols));
      call.shape.block[i] = static_cast<unsigned>(each.block[i]);
    }
    call.shape.shared_bytes = static_cast<unsigned>(each.shared_bytes);
    call.values.reserve(each.params.size());
    for (const Param& param : each.params) parameters.add(param);
  }
}

}  // namespace dsv41c::cuda
