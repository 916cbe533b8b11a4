// Evaluates the expressions of a CUDA body and lays its parameters out.
#include "cuda/kernel_call.h"

#include <bit>

namespace dsv41c::cuda {
namespace {

static_assert(std::endian::native == std::endian::little);  // a narrow parameter is the low bytes of its 8

Access access_of(const Argument& argument, const ValueTable::Entry& value) {
  // What a launch writes it may read again in a later call of the same body.
  const bool is_written = argument.kind != ArgumentKind::in;
  return {value.address, value.address + static_cast<Address>(value.bytes), true, is_written};
}

class Parameters {
 public:
  Parameters(const Launch& launch, const Symbols& symbols, const ValueTable& values, KernelCall& call)
      : launch_(launch), symbols_(symbols), values_(values), call_(call) {}

  void add(const Param& param) {
    switch (param.kind) {
      case ParamKind::tensor:
        return add_tensor(launch_.tensors[static_cast<size_t>(param.tensor)]);
      case ParamKind::scratch:
        return add_scratch(evaluate(param.value, symbols_));
      case ParamKind::int32:
        return push(static_cast<uint32_t>(evaluate(param.value, symbols_)));
      case ParamKind::int64:
        return push(static_cast<uint64_t>(evaluate(param.value, symbols_)));
      case ParamKind::float_:
        return push(std::bit_cast<uint32_t>(param.number));
    }
  }

 private:
  void push(uint64_t value) { call_.values.push_back(value); }

  void add_tensor(const Argument& argument) {
    if (argument.kind == ArgumentKind::none) return push(0);
    const ValueTable::Entry& value = values_[argument.value];
    push(value.address);
    if (!value.is_weight) call_.accesses.push_back(access_of(argument, value));
  }

  void add_scratch(int64_t offset) {
    if (!launch_.scratch) return push(0);  // a kernel without scratch bytes
    const ValueTable::Entry& scratch = values_[*launch_.scratch];
    push(scratch.address + static_cast<Address>(offset));
    call_.accesses.push_back({scratch.address, scratch.address + static_cast<Address>(scratch.bytes), true, true});
  }

  const Launch& launch_;
  const Symbols& symbols_;
  const ValueTable& values_;
  KernelCall& call_;
};

}  // namespace

KernelNodeParams KernelCall::parameters(std::vector<void*>& pointers) {
  pointers.clear();
  for (uint64_t& value : values) pointers.push_back(&value);
  KernelNodeParams result = shape;
  result.parameters = pointers.data();
  return result;
}

ValueTable::ValueTable(const Method& method, int64_t rows, const Regions& regions) {
  const Symbols symbols{{method.symbol, rows}};
  entries_.reserve(method.values.size());
  for (size_t i = 0; i < method.values.size(); ++i) {
    const Storage& storage = method.values[i].storage;
    const dsv41c_tensor tensor = regions.tensor(method, static_cast<int64_t>(i), symbols);
    const bool is_weight = storage.kind == StorageKind::view ? entries_[static_cast<size_t>(storage.index)].is_weight
                                                             : storage.kind == StorageKind::weight;
    entries_.push_back({reinterpret_cast<Address>(tensor.data), span_bytes(tensor), is_weight});
  }
}

void append_calls(const Kernel& kernel, const Launch& launch, int64_t rows, const ValueTable& values,
                  const FunctionTable& functions, std::vector<KernelCall>& calls) {
  const Symbols symbols{{std::string(plan_format::ROWS), rows}};
  for (const CudaLaunch& each : kernel.launches) {
    KernelCall& call = calls.emplace_back();
    call.launch = &launch;
    call.shape.function = functions.find(each.cubin, each.symbol);
    for (size_t i = 0; i < 3; ++i) {
      call.shape.grid[i] = static_cast<unsigned>(evaluate(each.grid[i], symbols));
      call.shape.block[i] = static_cast<unsigned>(each.block[i]);
    }
    call.shape.shared_bytes = static_cast<unsigned>(each.shared_bytes);
    call.values.reserve(each.params.size());
    Parameters parameters(launch, symbols, values, call);
    for (const Param& param : each.params) parameters.add(param);
  }
}

}  // namespace dsv41c::cuda
