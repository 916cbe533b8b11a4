// Loads each cubin once, finds its functions and allows them the shared memory that their launches ask for.
#include "cuda/function_table.h"

#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "mapped_file.h"
#include "sha256.h"

namespace dsv41c::cuda {
namespace {

constexpr int64_t DEFAULT_SHARED_BYTES = 48 * 1024;  // what a function may have without asking

}  // namespace

FunctionTable::FunctionTable(const Driver& driver, const Plan& plan, const std::string& artifact) : driver_(driver) {
  for (const Kernel& kernel : plan.kernels)
    for (const CudaLaunch& launch : kernel.launches)
      if (launch.kind == NodeKind::kernel) add(launch, artifact);
  for (const auto& [name, entry] : functions_)
    if (entry.shared_bytes > DEFAULT_SHARED_BYTES)
      driver.call(driver.function_set, entry.function, MAX_DYNAMIC_SHARED_BYTES, static_cast<int>(entry.shared_bytes));
}

void FunctionTable::add(const CudaLaunch& launch, const std::string& artifact) {
  if (!modules_.contains(launch.cubin)) load_cubin(launch.cubin, artifact);
  Entry& entry = functions_[{launch.cubin, launch.symbol}];
  if (!entry.function) {
    try {
      driver_.call(driver_.module_function, &entry.function, modules_.at(launch.cubin).get(), launch.symbol.c_str());
    } catch (const Error& error) {
      ErrorFields fields = error.fields();
      fields.where = "function " + launch.symbol + " of cubin " + launch.cubin;
      throw Error(std::move(fields));
    }
  }
  entry.shared_bytes = std::max(entry.shared_bytes, launch.shared_bytes);
}

void FunctionTable::load_cubin(const std::string& digest, const std::string& artifact) {
  const MappedFile file(artifact + "/kernels/" + digest + ".cubin");
  const std::string found = sha256_hex(file.data(), static_cast<size_t>(file.size()));
  if (found != digest)
    throw Error({.code = plan_format::E0602,
                 .subject = file.path() + " is not the cubin that the plan names",
                 .found = found,
                 .needed = digest,
                 .action = "copy the artifact again, or compile it again"});
  ModuleHandle handle = nullptr;
  driver_.call(driver_.module_load, &handle, static_cast<const void*>(file.data()));
  modules_.emplace(digest, Module(driver_, handle));
}

FunctionHandle FunctionTable::find(const std::string& cubin, const std::string& symbol) const {
  return functions_.at({cubin, symbol}).function;
}

}  // namespace dsv41c::cuda
