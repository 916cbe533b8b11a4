// Binds a launch with its provider and runs it.
#include "provider_launch.h"

#include <utility>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

std::string launch_place(const Method& method, const Launch& launch, int64_t rows) {
  return "method " + method.name + ", launch " + launch.name + ", " + std::to_string(rows) + " rows";
}

ProviderLaunch::ProviderLaunch(const PreparedKernel& kernel, const std::string& op, const dsv41c_binding& binding,
                               const Method& method, const Launch& launch, std::string_view code)
    : provider_(kernel.provider), method_(&method), launch_(&launch), rows_(binding.rows) {
  ProviderMessage message;
  if (provider_->bind(kernel.handle, &binding, &bound_, &message.error) != 0)
    throw Error({.code = code,
                 .subject = "kernel " + op + " cannot be bound",
                 .where = launch_place(method, launch, rows_),
                 .found = message.text,
                 .needed = "tensors that the kernel takes",
                 .action = "compile the artifact with the installed version"});
}

ProviderLaunch::ProviderLaunch(ProviderLaunch&& other) noexcept
    : provider_(other.provider_),
      bound_(std::exchange(other.bound_, nullptr)),
      method_(other.method_),
      launch_(other.launch_),
      rows_(other.rows_) {}

ProviderLaunch::~ProviderLaunch() {
  if (bound_) provider_->unbind(bound_);
}

void ProviderLaunch::run(ProviderMessage& message) const {
  if (provider_->launch(bound_, &message.error) != 0) fail(message);
}

void ProviderLaunch::fail(const ProviderMessage& message) const {
  throw Error({.code = plan_format::E0802,
               .subject = "a launch failed",
               .where = launch_place(*method_, *launch_, rows_),
               .found = message.text,
               .needed = "every launch to succeed; the state of this step's slots is now undefined",
               .action = "restart the affected slots, and report the failure with this message"});
}

}  // namespace dsv41c
