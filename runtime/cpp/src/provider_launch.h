// A launch, or one part of it, that a provider has bound to fixed addresses.
#pragma once

#include <string>

#include "kernel_table.h"
#include "sequence.h"

namespace dsv41c {

class ProviderLaunch {
 public:
  // `code` is the error code of a refusal: E0703 while loading, E0802 inside an eager step.
  ProviderLaunch(const PreparedKernel& kernel, const std::string& op, const dsv41c_binding& binding,
                 const LaunchPlace& place, std::string_view code);
  ProviderLaunch(ProviderLaunch&& other) noexcept;
  ProviderLaunch& operator=(ProviderLaunch&&) = delete;
  ~ProviderLaunch();

  void run(ProviderMessage& message) const;  // E0802; allocates nothing unless it fails

 private:
  [[noreturn]] void fail(const ProviderMessage& message) const;

  const dsv41c_provider* provider_;
  void* bound_ = nullptr;
  LaunchPlace place_;
};

}  // namespace dsv41c
