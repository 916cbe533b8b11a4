// Ends the sleep of an engine's thread; a wake before the sleep counts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace dsv41c {

class Wake {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    signal_.notify_one();
  }

  void wait(std::optional<std::chrono::steady_clock::time_point> until) {
    std::unique_lock lock(mutex_);
    const auto is_set = [this] { return set_; };
    until ? static_cast<void>(signal_.wait_until(lock, *until, is_set)) : signal_.wait(lock, is_set);
    set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable signal_;
  bool set_ = false;
};

}  // namespace dsv41c
