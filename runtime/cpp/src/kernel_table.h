// The plan's kernels, prepared by their providers.
#pragma once

#include <string>
#include <vector>

#include "plan.h"

namespace dsv41c {

struct PreparedKernel {
  const char* name = "";                      // of the provider; "sequence" when there may be several
  const dsv41c_provider* provider = nullptr;  // null for a cubin and a sequence: the backend knows what to do
  void* handle = nullptr;
};

class KernelTable {
 public:
  // E0702 when the provider of a kernel is not among `providers`, E0703 when it refuses a kernel.
  KernelTable(const Plan& plan, std::vector<const dsv41c_provider*> providers);
  ~KernelTable();
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  const PreparedKernel& operator[](int64_t index) const { return kernels_[static_cast<size_t>(index)]; }
  const std::vector<const dsv41c_provider*>& providers() const { return providers_; }

 private:
  void prepare(const Kernel& kernel);
  void release() noexcept;

  std::vector<const dsv41c_provider*> providers_;
  std::vector<PreparedKernel> kernels_;
};

// Text that a provider wrote, on the stack: launching must not allocate.
struct ProviderMessage {
  char text[1024] = "";
  dsv41c_error error{text, sizeof text};
};

}  // namespace dsv41c
