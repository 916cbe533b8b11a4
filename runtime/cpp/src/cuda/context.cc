// Finds the device that the host asked for and checks that the artifact was compiled for it.
#include "cuda/context.h"

#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::cuda {
namespace {

struct Architecture {
  const char* target;
  const char* capability;
};
constexpr Architecture ARCHITECTURES[] = {{"sm_90a", "9.0"}, {"sm_100a", "10.0"}};
static_assert(std::size(ARCHITECTURES) + 1 == std::size(plan_format::TARGETS));  // and cpu

[[noreturn]] void no_device(int32_t device, const std::string& found) {
  throw Error({.code = plan_format::E0705,
               .subject = "CUDA device " + std::to_string(device),
               .found = found,
               .needed = "a device index from 0 below the number of devices",
               .action = "choose a device that nvidia-smi lists, or compile the artifact with --target cpu"});
}

}  // namespace

Context::Context(const Driver& driver, int32_t device, const std::string& target) : driver_(driver), index_(device) {
  start(device);
  check_architecture(target);
  driver.call(driver.context_retain, &handle_, number_);
}

Context::~Context() { driver_.context_release.address(number_); }

void Context::start(int32_t device) {
  const Result started = driver_.init.address(0);
  if (started == NO_DEVICE) no_device(device, driver_.describe(driver_.init.name, started));
  if (started != SUCCESS)
    throw Error({.code = plan_format::E0704,
                 .subject = "CUDA driver " + driver_.library(),
                 .found = driver_.describe(driver_.init.name, started),
                 .needed = "a driver that starts",
                 .action = "check the installation with nvidia-smi, or compile the artifact with --target cpu"});
  int count = 0;
  driver_.call(driver_.device_count, &count);
  if (device < 0 || device >= count) no_device(device, std::to_string(count) + " devices");
  driver_.call(driver_.device_get, &number_, device);
  driver_.call(driver_.version, &version_);
  char name[128] = "";
  driver_.call(driver_.device_name, name, static_cast<int>(sizeof name), number_);
  name_ = name;
}

void Context::check_architecture(const std::string& target) {
  int major = 0, minor = 0;
  driver_.call(driver_.device_attribute, &major, COMPUTE_CAPABILITY_MAJOR, number_);
  driver_.call(driver_.device_attribute, &minor, COMPUTE_CAPABILITY_MINOR, number_);
  capability_ = std::to_string(major) + "." + std::to_string(minor);
  const Architecture* needed = std::ranges::find_if(ARCHITECTURES, [&](const auto& a) { return target == a.target; });
  if (needed != std::end(ARCHITECTURES) && capability_ == needed->capability) return;
  throw Error({.code = plan_format::E0706,
               .subject = "CUDA device " + std::to_string(index_) + ", " + name_,
               .found = "compute capability " + capability_,
               .needed = "compute capability " +
                         std::string(needed == std::end(ARCHITECTURES) ? "?" : needed->capability) +
                         ": the artifact is for " + target,
               .action = "compile the artifact for this device, or choose another one"});
}

void Context::pop() const noexcept {
  ContextHandle popped = nullptr;
  driver_.context_pop.address(&popped);
}

}  // namespace dsv41c::cuda
