// One instance of a model: an engine, the requests that it works on, and a thread that sees cancelled ones.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "generation.h"
#include "metrics.h"

namespace dsv41c_triton {

class Instance {
 public:
  // `settings` and `artifact` live longer.
  Instance(dsv_artifact* artifact, const Settings& settings, TRITONBACKEND_ModelInstance* triton, Metrics metrics);
  ~Instance();  // waits for its requests

  // Queues the request; everything else happens on threads of the engine.
  void execute(TRITONBACKEND_Request* request) noexcept;
  void check_ready() const { check(api().engine_ready(engine_.get())); }

 private:
  struct Live;
  static int32_t on_event(void* live, const dsv_event* event);
  void end(Live* live) noexcept;
  void watch();

  const Settings& settings_;
  TRITONBACKEND_ModelInstance* const triton_;
  Metrics metrics_;
  const Owned<dsv_engine> engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The handle is null until generate has returned.
  std::unordered_map<Live*, std::shared_ptr<dsv_request>> live_;
  bool stop_ = false;
  std::thread watcher_;
};

}  // namespace dsv41c_triton
