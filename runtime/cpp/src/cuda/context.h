// One device of the driver and its primary context, which the executor shares with torch when both are there.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace dsv41c::cuda {

class Context {
 public:
  // E0704 when the driver does not start, E0705 without that device, E0706 when it is not of the target's
  // architecture ("sm_90a").
  Context(const Driver& driver, int32_t device, const std::string& target);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  ContextHandle handle() const { return handle_; }
  int32_t device() const { return index_; }
  const std::string& device_name() const { return name_; }
  const std::string& capability() const { return capability_; }  // "9.0"
  int driver_version() const { return version_; }                // 12040 is 12.4
  void push() const { driver_.call(driver_.context_push, handle_); }
  // For releases: once more where it fails, for a call may report the failure of earlier work instead.
  bool try_push() const noexcept {
    return driver_.context_push.address(handle_) == SUCCESS || driver_.context_push.address(handle_) == SUCCESS;
  }
  void pop() const noexcept;

 private:
  void start(int32_t device);
  void check_architecture(const std::string& target);

  const Driver& driver_;
  int32_t index_;
  DeviceNumber number_ = 0;
  ContextHandle handle_ = nullptr;
  std::string name_, capability_;
  int version_ = 0;
};

// The context is current on this thread while it lives.
class Current {
 public:
  explicit Current(const Context& context) : context_(context) { context.push(); }
  ~Current() { context_.pop(); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Context& context_;
};

// For destructors: where the context cannot be made current, what is released next reports and ignores it.
class CurrentForRelease {
 public:
  explicit CurrentForRelease(const Context& context) noexcept : context_(context), is_pushed_(context.try_push()) {}
  ~CurrentForRelease() {
    if (is_pushed_) context_.pop();
  }
  CurrentForRelease(const CurrentForRelease&) = delete;
  CurrentForRelease& operator=(const CurrentForRelease&) = delete;

 private:
  const Context& context_;
  bool is_pushed_;
};

}  // namespace dsv41c::cuda
