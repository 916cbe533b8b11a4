// Chooses the backend of a plan.
#include "backend.h"

#include <nlohmann/json.hpp>

#include "check_option.h"
#include "checked_backend.h"
#include "cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

nlohmann::ordered_json Backend::report() const { return nullptr; }

std::string Backend::graph_bench(std::span<const std::unique_ptr<LoadedMethod>>, int32_t) {
  throw Error({.code = plan_format::E0901,
               .subject = "bench of graphs",
               .found = "an artifact for a target without graphs",
               .needed = "an artifact for a CUDA target",
               .action = "compile it with --target sm_90a"});
}

std::unique_ptr<Backend> make_backend(const Artifact& artifact, const KernelTable& kernels,
                                      const DeviceOptions& options) {
  const std::string& target = artifact.plan().target;
  if (options.check_seed && target != "cpu") refuse_check(target);
  if (options.check_seed) return std::make_unique<CheckedBackend>(artifact, kernels, *options.check_seed);
  if (target == "cpu") return std::make_unique<CpuBackend>(artifact, kernels);
  return std::make_unique<cuda::CudaBackend>(artifact, kernels, options);
}

}  // namespace dsv41c
