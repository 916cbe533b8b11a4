// Prepares every kernel of the plan with the provider of its body.
#include "kernel_table.h"

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

std::string provider_of(const Kernel& kernel) { return kernel.kind == BodyKind::native ? "cpu" : "aten"; }

[[noreturn]] void missing(const Kernel& kernel, const std::string& wanted) {
  throw Error({.code = plan_format::E0702,
               .subject = "provider " + wanted,
               .where = "kernel " + kernel.op,
               .found = "no such provider",
               .needed = wanted == "aten" ? "libdsv41c_aten, built against the torch of this environment"
                                          : "libdsv41c's own provider",
               .action = "run `make install` (it builds with --no-build-isolation, so that CMake sees torch)"});
}

void check_abi(const std::vector<const dsv41c_provider*>& providers) {
  for (const dsv41c_provider* p : providers)
    if (p->abi != DSV41C_PROVIDER_ABI)
      throw Error({.code = plan_format::E0703,
                   .subject = std::string("provider ") + p->name,
                   .found = "provider interface " + std::to_string(p->abi),
                   .needed = "provider interface " + std::to_string(DSV41C_PROVIDER_ABI),
                   .action = "build the provider with the headers of this version"});
}

}  // namespace

KernelTable::KernelTable(const Plan& plan, std::vector<const dsv41c_provider*> providers)
    : providers_(std::move(providers)) {
  check_abi(providers_);
  try {
    kernels_.reserve(plan.kernels.size());
    for (const Kernel& kernel : plan.kernels) prepare(kernel);
  } catch (...) {
    release();
    throw;
  }
}

KernelTable::~KernelTable() { release(); }

void KernelTable::prepare(const Kernel& kernel) {
  if (kernel.kind == BodyKind::cuda || kernel.kind == BodyKind::sequence) {
    kernels_.push_back({kernel.kind == BodyKind::cuda ? "cuda" : "sequence", nullptr, nullptr});
    return;
  }
  const std::string wanted = provider_of(kernel);
  PreparedKernel prepared;
  for (const dsv41c_provider* p : providers_)
    if (wanted == p->name) prepared.provider = p;
  if (!prepared.provider) missing(kernel, wanted);
  prepared.name = prepared.provider->name;
  ProviderMessage message;
  if (prepared.provider->prepare(kernel.body.c_str(), &prepared.handle, &message.error) != 0)
    throw Error({.code = plan_format::E0703,
                 .subject = "kernel " + kernel.op + " cannot be prepared",
                 .where = "provider " + wanted,
                 .found = message.text,
                 .needed = "a kernel body that this build of the provider knows",
                 .action = "compile the artifact with the installed version"});
  kernels_.push_back(prepared);
}

void KernelTable::release() noexcept {
  for (const PreparedKernel& k : kernels_)
    if (k.provider) k.provider->release(k.handle);
  kernels_.clear();
}

}  // namespace dsv41c
