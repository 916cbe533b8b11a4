// A launch that a provider has bound to fixed addresses.
#pragma once

#include <string>

#include "kernel_table.h"
#include "plan.h"

namespace dsv41c {

// "method decode, launch norm, 4 rows", for messages.
std::string launch_place(const Method& method, const Launch& launch, int64_t rows);

class ProviderLaunch {
 public:
  // `code` is the error code of a refusal: E0703 while loading, E0802 inside an eager step.
  ProviderLaunch(const PreparedKernel& kernel, const std::string& op, const dsv41c_binding& binding,
                 const Method& method, const Launch& launch, std::string_view code);
  ProviderLaunch(ProviderLaunch&& other) noexcept;
  ProviderLaunch& operator=(ProviderLaunch&&) = delete;
  ~ProviderLaunch();

  void run(ProviderMessage& message) const;  // E0802; allocates nothing unless it fails

 private:
  [[noreturn]] void fail(const ProviderMessage& message) const;

  const dsv41c_provider* provider_;
  void* bound_ = nullptr;
  const Method* method_;
  const Launch* launch_;
  int64_t rows_;
};

}  // namespace dsv41c
