#include "instance.h"

#include <chrono>
#include <optional>
#include <vector>

namespace dsv41c_triton {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds POLL{20};   // of requests that have no event yet, and of the engine's numbers
constexpr std::chrono::milliseconds IDLE{500};  // the same without requests
// Triton 24.10 crashes when the last response of a request meets its own handling of the cancel.
constexpr std::chrono::milliseconds CANCEL_DELAY{25};

void write_log(void*, int32_t level, const char* text, size_t length) {
  constexpr TRITONSERVER_LogLevel LEVELS[] = {TRITONSERVER_LOG_ERROR, TRITONSERVER_LOG_WARN, TRITONSERVER_LOG_INFO};
  log(LEVELS[level], "dsv41c: " + std::string(text, length));
}

Owned<dsv_engine> create(dsv_artifact* artifact, dsv_engine_options options, TRITONBACKEND_ModelInstance* triton) {
  if (get(TRITONBACKEND_ModelInstanceKind, triton) == TRITONSERVER_KIND_GPU)
    options.device_id = get(TRITONBACKEND_ModelInstanceDeviceId, triton);
  options.log = write_log;
  dsv_engine* engine = nullptr;
  check(api().engine_create(artifact, &options, &engine));
  return Owned<dsv_engine>(engine);
}

}  // namespace

struct Instance::Live {
  Instance& instance;
  Generation generation;
  std::optional<Refusal> cancelled = {};  // its last response, which waits until `when`
  Clock::time_point when = {};
};

Instance::Instance(dsv_artifact* artifact, const Settings& settings, TRITONBACKEND_ModelInstance* triton,
                   Metrics metrics)
    : settings_(settings),
      triton_(triton),
      metrics_(std::move(metrics)),
      engine_(create(artifact, settings.engine, triton)),
      watcher_([this] { watch(); }) {}

Instance::~Instance() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return live_.empty(); });
    stop_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

void Instance::execute(TRITONBACKEND_Request* request) noexcept {
  Live* live = nullptr;
  try {
    live = new Live{*this, {triton_, request}};
  } catch (const std::exception& error) {  // without a response factory nobody can be told
    log(TRITONSERVER_LOG_ERROR, error.what());
    return forget(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  {
    std::lock_guard lock(mutex_);
    live_.emplace(live, nullptr);
  }
  changed_.notify_all();
  try {
    dsv_request* handle = nullptr;
    check(api().generate(engine_.get(), &live->generation.read(settings_), on_event, live, &handle));
    const std::shared_ptr<dsv_request> owned(handle, Free());
    std::lock_guard lock(mutex_);
    // It may have ended: `live` is only a key then, which no other request has, for only this thread makes them.
    if (const auto found = live_.find(live); found != live_.end()) found->second = owned;
  } catch (const Refusal& refusal) {
    live->generation.fail(refusal);
    end(live);
  } catch (const std::exception& error) {
    live->generation.fail(Refusal(TRITONSERVER_ERROR_INTERNAL, error.what()));
    end(live);
  }
}

int32_t Instance::on_event(void* user, const dsv_event* event) {
  auto* const live = static_cast<Live*>(user);
  if (event->code == DSV_E_CANCELLED) {
    const std::lock_guard lock(live->instance.mutex_);
    live->cancelled = refusal_of(event->code, event->error_json, event->message);
    live->when = Clock::now() + CANCEL_DELAY;
    return 0;
  }
  if (event->kind != DSV_EV_TOKENS) {
    live->generation.finish(*event);
    live->instance.end(live);
    return 0;
  }
  if (live->generation.is_cancelled()) return 1;
  const TE error = guarded([&] { live->generation.add(*event); });
  if (error == nullptr) return 0;
  log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return 1;  // the rest would be an answer with a hole
}

void Instance::end(Live* live) noexcept {
  std::shared_ptr<dsv_request> handle;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(live);
  handle = std::move(found->second);
  live_.erase(found);
  delete live;
  changed_.notify_all();  // with the lock: without it this instance may be gone
}

void Instance::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::vector<std::shared_ptr<dsv_request>> cancelled;
    std::vector<Live*> over;
    for (const auto& [live, handle] : live_) {
      if (live->cancelled && Clock::now() >= live->when) over.push_back(live);
      if (!live->cancelled && handle != nullptr && live->generation.is_cancelled()) cancelled.push_back(handle);
    }
    lock.unlock();
    for (const auto& handle : cancelled) api().status_free(api().request_cancel(handle.get()));
    for (Live* const live : over) {
      live->generation.fail(*live->cancelled);
      end(live);
    }
    cancelled.clear();
    metrics_.update(engine_.get());
    lock.lock();
    if (!stop_) changed_.wait_for(lock, live_.empty() ? IDLE : POLL);
  }
}

}  // namespace dsv41c_triton
