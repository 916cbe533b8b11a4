// Binds a composite to addresses and sizes, freezes its argument stacks and launches it.
#include <c10/core/StreamGuard.h>

#include <stdexcept>

#include "composite.h"

namespace dsv41c::aten {
namespace {

std::vector<int64_t> evaluated(const std::vector<Expr>& expressions, const Symbols& symbols) {
  std::vector<int64_t> out;
  for (const Expr& e : expressions) out.push_back(evaluate(e, symbols));
  return out;
}

// Bytes from the first element to the end of the last one.
int64_t span_bytes(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t item) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 1 || strides[d] < 0)
      throw std::invalid_argument("size " + std::to_string(sizes[d]) + " with stride " + std::to_string(strides[d]));
    last += (sizes[d] - 1) * strides[d];
  }
  return (last + 1) * item;
}

// Where a binding's addresses are.
c10::Device device_of(const dsv41c_binding& binding) {
  if (binding.device < 0) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(binding.device)};
}

// A stream of the host as torch names it: the id of a stream that torch did not make is its address.
std::optional<c10::Stream> stream_of(const dsv41c_binding& binding) {
  if (binding.device < 0) return std::nullopt;
  if (!at::hasCUDA())
    throw std::invalid_argument("this torch has no CUDA, needed one to run a fallback on CUDA device " +
                                std::to_string(binding.device) +
                                ": install a CUDA build of torch, then `make install`");
  at::globalContext().lazyInitDevice(at::kCUDA);  // its allocator does not start by itself
  return c10::Stream(c10::Stream::UNSAFE, device_of(binding), reinterpret_cast<c10::StreamId>(binding.stream));
}

at::Tensor at_address(void* data, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                      at::ScalarType dtype, c10::Device device) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  return at::for_blob(data, sizes).strides(strides).options(options).target_device(device).make_tensor();
}

// A template states what it was traced with; a launch that brings anything else is refused.
at::Tensor argument(const Local& local, const dsv41c_binding& binding, const Symbols& symbols) {
  if (local.index >= static_cast<size_t>(binding.num_tensors))
    throw std::invalid_argument("tensor " + std::to_string(local.index) + " of " + std::to_string(binding.num_tensors));
  const dsv41c_tensor& given = binding.tensors[local.index];
  if (given.ndim < 0) return {};
  const auto sizes = evaluated(local.sizes, symbols), strides = evaluated(local.strides, symbols);
  bool is_same = given.ndim == static_cast<int32_t>(sizes.size()) && scalar_type(given.dtype) == local.dtype;
  std::string found = "dtype code " + std::to_string(given.dtype), needed = c10::toString(local.dtype);
  for (int d = 0; d < given.ndim; ++d)
    found += ", " + std::to_string(given.sizes[d]) + ":" + std::to_string(given.strides[d]);
  for (size_t d = 0; d < sizes.size(); ++d) {
    needed += ", " + std::to_string(sizes[d]) + ":" + std::to_string(strides[d]);
    is_same = is_same && given.sizes[d] == sizes[d] && (sizes[d] == 1 || given.strides[d] == strides[d]);
  }
  if (!is_same)
    throw std::invalid_argument("tensor " + std::to_string(local.index) + " is " + found + " (size:stride), needed " +
                                needed);
  return at_address(given.data, sizes, strides, local.dtype, device_of(binding));
}

at::Tensor temporary(const Local& local, const dsv41c_binding& binding, const Symbols& symbols) {
  const auto sizes = evaluated(local.sizes, symbols), strides = evaluated(local.strides, symbols);
  const int64_t item = static_cast<int64_t>(c10::elementSize(local.dtype));
  const int64_t offset = evaluate(local.offset, symbols), end = offset + span_bytes(sizes, strides, item);
  if (offset < 0 || end > binding.scratch_bytes)
    throw std::invalid_argument("a temporary at bytes " + std::to_string(offset) + ".." + std::to_string(end) +
                                " of a scratch of " + std::to_string(binding.scratch_bytes));
  return at_address(static_cast<char*>(binding.scratch) + offset, sizes, strides, local.dtype, device_of(binding));
}

at::Tensor view(const Local& local, const at::Tensor& base, const Symbols& symbols) {
  if (!base.defined()) throw std::invalid_argument("a view of an absent tensor");
  const auto sizes = evaluated(local.sizes, symbols), strides = evaluated(local.strides, symbols);
  const int64_t item = static_cast<int64_t>(c10::elementSize(local.dtype));
  const int64_t offset = evaluate(local.offset, symbols) * item, end = offset + span_bytes(sizes, strides, item);
  const auto base_bytes = static_cast<int64_t>(base.storage().nbytes());
  if (offset < 0 || end > base_bytes)
    throw std::invalid_argument("a view of bytes " + std::to_string(offset) + ".." + std::to_string(end) +
                                " of a tensor that spans " + std::to_string(base_bytes));
  return at_address(static_cast<char*>(base.data_ptr()) + offset, sizes, strides, local.dtype, base.device());
}

at::Tensor constant_on(Local& local, c10::Device device) {
  if (device.is_cpu()) return local.constant;
  if (!local.cuda_constant.defined() || local.cuda_constant.device() != device)
    local.cuda_constant = local.constant.to(device);
  return local.cuda_constant;
}

std::vector<at::Tensor> make_locals(Composite& composite, const dsv41c_binding& binding, const Symbols& symbols) {
  std::vector<at::Tensor> made;
  for (Local& local : composite.locals) {
    switch (local.kind) {
      case LocalKind::arg:
        made.push_back(argument(local, binding, symbols));
        break;
      case LocalKind::temp:
        made.push_back(temporary(local, binding, symbols));
        break;
      case LocalKind::view:
        made.push_back(view(local, made[local.index], symbols));
        break;
      case LocalKind::constant:
        made.push_back(constant_on(local, device_of(binding)));
        break;
    }
  }
  return made;
}

c10::IValue make_operand(const Operand& operand, const std::vector<at::Tensor>& locals, const Symbols& symbols) {
  switch (operand.kind) {
    case Operand::Kind::tensor:
      return locals[operand.locals[0]];
    case Operand::Kind::tensors: {
      c10::List<at::Tensor> list;
      for (size_t index : operand.locals) list.push_back(locals[index]);
      return list;
    }
    case Operand::Kind::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (size_t index : operand.locals) list.push_back(locals[index]);
      return list;
    }
    case Operand::Kind::integer:
      return evaluate(operand.values[0], symbols);
    case Operand::Kind::scalar:
      return at::Scalar(evaluate(operand.values[0], symbols));
    case Operand::Kind::integers:
      return evaluated(operand.values, symbols);
    case Operand::Kind::fixed:
      return operand.fixed;
  }
  throw std::logic_error("operand kind");
}

}  // namespace

BoundComposite::BoundComposite(Composite& composite, const dsv41c_binding& binding) : stream_(stream_of(binding)) {
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  freeze(composite, binding);
}

void BoundComposite::freeze(Composite& composite, const dsv41c_binding& binding) {
  const Symbols symbols{{"rows", binding.rows}};
  const auto locals = make_locals(composite, binding, symbols);
  size_t deepest = 0;
  for (const Call& call : composite.calls) {
    Frozen frozen{&call, {}};
    for (const Operand& operand : call.operands) frozen.arguments.push_back(make_operand(operand, locals, symbols));
    deepest = std::max(deepest, frozen.arguments.size());
    calls_.push_back(std::move(frozen));
    for (size_t index : call.written)
      written_.push_back({locals[index], locals[index].data_ptr(), locals[index].sizes().vec(), &call});
  }
  stack_.reserve(deepest + 4);  // a boxed call pops its arguments before it pushes its results
}

void BoundComposite::launch() {
  if (!stream_) return run_calls();
  const c10::StreamGuard guard(*stream_);
  run_calls();
}

void BoundComposite::run_calls() {
  for (const Frozen& frozen : calls_) {
    stack_.insert(stack_.end(), frozen.arguments.begin(), frozen.arguments.end());
    frozen.call->op.callBoxed(&stack_);
    stack_.clear();
  }
  if (verified_) return;
  verify_written();
  verified_ = true;
  written_.clear();
}

// torch resizes an out tensor of the wrong shape with a warning only, and then writes over the neighbour.
void BoundComposite::verify_written() const {
  for (const Written& w : written_)
    if (w.tensor.data_ptr() != w.data || w.tensor.sizes() != at::IntArrayRef(w.sizes))
      throw std::runtime_error(w.call->name + " resized or moved its output: found sizes " +
                               c10::str(w.tensor.sizes()) + ", planned " + c10::str(at::IntArrayRef(w.sizes)));
}

}  // namespace dsv41c::aten
