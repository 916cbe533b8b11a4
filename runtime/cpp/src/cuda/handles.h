// Owners of the driver's objects: each is released once, with its context current by then.
#pragma once

#include <utility>

#include "cuda/driver.h"

namespace dsv41c::cuda {

template <class Handle, Function<Handle> Driver::* Release>
class Owned {
 public:
  Owned() = default;
  Owned(const Driver& driver, Handle handle) : driver_(&driver), handle_(handle) {}
  Owned(Owned&& other) noexcept : driver_(other.driver_), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      driver_ = other.driver_;
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }
  ~Owned() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }
  // What a release returns is dropped: it may be the failure of earlier asynchronous work, reported before.
  void reset() noexcept {
    if (handle_ != Handle{}) (driver_->*Release).address(handle_);
    handle_ = Handle{};
  }

 private:
  const Driver* driver_ = nullptr;
  Handle handle_{};
};

using DeviceMemory = Owned<Address, &Driver::memory_free>;
using PinnedMemory = Owned<void*, &Driver::pinned_free>;
using Stream = Owned<StreamHandle, &Driver::stream_destroy>;
using Event = Owned<EventHandle, &Driver::event_destroy>;
using Module = Owned<ModuleHandle, &Driver::module_unload>;
using Graph = Owned<GraphHandle, &Driver::graph_destroy>;
using Executable = Owned<ExecutableHandle, &Driver::executable_destroy>;

inline Stream make_stream(const Driver& driver) {
  StreamHandle handle{};
  driver.call(driver.stream_create, &handle, STREAM_NON_BLOCKING);
  return {driver, handle};
}

inline Event make_event(const Driver& driver, unsigned flags) {
  EventHandle handle{};
  driver.call(driver.event_create, &handle, flags);
  return {driver, handle};
}

}  // namespace dsv41c::cuda
