// The kernels of a plan's cubins, loaded from the artifact.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/handles.h"
#include "plan.h"

namespace dsv41c::cuda {

class FunctionTable {
 public:
  // E0601 or E0602 for a cubin that is missing or is not the one that the plan names.
  FunctionTable(const Driver& driver, const Plan& plan, const std::string& artifact);

  const Driver& driver() const { return driver_; }
  FunctionHandle find(const std::string& cubin, const std::string& symbol) const;
  size_t num_modules() const { return modules_.size(); }

 private:
  struct Entry {
    FunctionHandle function = nullptr;
    int64_t shared_bytes = 0;  // the most of any launch
  };
  void load_cubin(const std::string& digest, const std::string& artifact);
  void add(const CudaLaunch& launch, const std::string& artifact);

  const Driver& driver_;
  std::map<std::string, Module> modules_;                           // by digest
  std::map<std::pair<std::string, std::string>, Entry> functions_;  // by digest and symbol
};

}  // namespace dsv41c::cuda
