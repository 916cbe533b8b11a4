// Resolves the tensors of a method's launches and binds them.
#include "bound_method.h"

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

std::string place(const Method& method, const Launch& launch, int64_t rows) {
  return "method " + method.name + ", launch " + launch.name + ", " + std::to_string(rows) + " rows";
}

int64_t count(const dsv41c_tensor& t) {
  int64_t n = 1;
  for (int d = 0; d < t.ndim; ++d) n *= t.sizes[d];
  return n;
}

}  // namespace

uint8_t* Regions::address(const Method& method, const Value& value, const Symbols& symbols) const {
  const int64_t index = value.storage.index;
  switch (value.storage.kind) {
    case StorageKind::arena:
      return reservation->arena() + index;
    case StorageKind::io:
      return reservation->io() + index;
    case StorageKind::state:
      return reservation->state() + plan->state[static_cast<size_t>(index)].offset;
    case StorageKind::bridge:
      return reservation->bridges() + plan->bridges[static_cast<size_t>(index)].offset;
    // Mapped read-only; the verifier has refused every plan that writes a weight.
    case StorageKind::weight:
      return const_cast<uint8_t*>((*weights)[static_cast<size_t>(index)]->data);
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

BoundMethod::BoundMethod(const Method& method, int64_t rows, const Regions& regions, const KernelTable& kernels,
                         std::string_view code)
    : method_(method), rows_(rows) {
  try {
    for (const Step& step : method.steps)
      for (const Launch& launch : step.launches) bind(launch, regions, kernels, code);
  } catch (...) {
    unbind();
    throw;
  }
}

BoundMethod::~BoundMethod() { unbind(); }

void BoundMethod::bind(const Launch& launch, const Regions& regions, const KernelTable& kernels,
                       std::string_view code) {
  const Symbols symbols{{method_.symbol, rows_}};
  std::vector<dsv41c_tensor> tensors;
  for (const Argument& argument : launch.tensors) {
    dsv41c_tensor absent{};
    absent.ndim = -1;
    tensors.push_back(argument.kind == ArgumentKind::none ? absent : regions.tensor(method_, argument.value, symbols));
  }
  dsv41c_binding binding{tensors.data(), static_cast<int32_t>(tensors.size()), 0, rows_, nullptr, 0};
  if (launch.scratch) {
    const dsv41c_tensor scratch = regions.tensor(method_, *launch.scratch, symbols);
    binding.scratch = scratch.data;
    binding.scratch_bytes = count(scratch) * item_bytes(scratch.dtype);
  }
  const PreparedKernel& kernel = kernels[launch.kernel];
  FrozenLaunch frozen{kernel.provider, nullptr, &launch};
  ProviderMessage message;
  if (kernel.provider->bind(kernel.handle, &binding, &frozen.bound, &message.error) != 0)
    throw Error(
        {.code = code,
         .subject = "kernel " + regions.plan->kernels[static_cast<size_t>(launch.kernel)].op + " cannot be bound",
         .where = place(method_, launch, rows_),
         .found = message.text,
         .needed = "tensors that the kernel takes",
         .action = "compile the artifact with the installed version"});
  launches_.push_back(frozen);
}

void BoundMethod::run() const {
  ProviderMessage message;
  for (const FrozenLaunch& frozen : launches_) {
    if (frozen.provider->launch(frozen.bound, &message.error) == 0) continue;
    throw Error({.code = plan_format::E0802,
                 .subject = "a launch failed",
                 .where = place(method_, *frozen.launch, rows_),
                 .found = message.text,
                 .needed = "every launch to succeed; the state of this step's slots is now undefined",
                 .action = "restart the affected slots, and report the failure with this message"});
  }
}

void BoundMethod::unbind() noexcept {
  for (const FrozenLaunch& frozen : launches_) frozen.provider->unbind(frozen.bound);
  launches_.clear();
}

}  // namespace dsv41c
