// Binds a launch with its provider and runs it.
#include "provider_launch.h"

#include <utility>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

ProviderLaunch::ProviderLaunch(const PreparedKernel& kernel, const std::string& op, const dsv41c_binding& binding,
                               const LaunchPlace& place, std::string_view code)
    : provider_(kernel.provider), place_(place) {
  ProviderMessage message;
  if (provider_->bind(kernel.handle, &binding, &bound_, &message.error) != 0)
    throw Error({.code = code,
                 .subject = "kernel " + op + " cannot be bound",
                 .where = place.text(),
                 .found = message.text,
                 .needed = "tensors that the kernel takes",
                 .action = "compile the artifact with the installed version"});
}

ProviderLaunch::ProviderLaunch(ProviderLaunch&& other) noexcept
    : provider_(other.provider_), bound_(std::exchange(other.bound_, nullptr)), place_(other.place_) {}

ProviderLaunch::~ProviderLaunch() {
  if (bound_) provider_->unbind(bound_);
}

void ProviderLaunch::run(ProviderMessage& message) const {
  if (provider_->launch(bound_, &message.error) != 0) fail(message);
}

void ProviderLaunch::fail(const ProviderMessage& message) const {
  throw Error({.code = plan_format::E0802,
               .subject = "a launch failed",
               .where = place_.text(),
               .found = message.text,
               .needed = "every launch to succeed; the state of this step's slots is now undefined",
               .action = "restart the affected slots, and report the failure with this message"});
}

}  // namespace dsv41c
