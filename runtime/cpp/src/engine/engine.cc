// What callers of an engine see: submission, state, closing.
#include "engine/engine.h"

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

Error closed() {
  return Error({.code = plan_format::E1005,
                .subject = "engine",
                .found = "a closed engine",
                .needed = "an open one",
                .action = "create another engine"});
}

Error queue_full(const GenerateParams& params, const EngineLimits& limits) {
  return Error({.code = plan_format::E1002,
                .subject = params.name(),
                .found = std::to_string(limits.queue) + " waiting requests",
                .needed = "fewer than max_queue " + std::to_string(limits.queue),
                .action = "try again later"});
}

}  // namespace

Engine::Engine(std::shared_ptr<Executor> executor, EngineOptions options)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      scheduler_(lowered(engine_limits(executor_->plan(), executor_->path()), options_.lower)),
      paused_(options_.paused),
      rows_(scheduler_.limits()) {
  statistics_.planned_bytes = static_cast<uint64_t>(executor_->planned_bytes());
  statistics_.weight_bytes = static_cast<uint64_t>(executor_->weight_bytes());
  options_.log(LogLevel::info, "engine: " + std::to_string(limits().slots) + " slots, " +
                                   std::to_string(limits().pages) + " pages of " + std::to_string(limits().block_size) +
                                   " tokens, steps of at most " + std::to_string(limits().rows) + " rows");
  thread_ = std::thread([this] { serve(); });
}

Engine::~Engine() { shut_down(std::chrono::milliseconds(0)); }

std::shared_ptr<Outbox> Engine::submit(GenerateParams params, Outbox::Callback callback) {
  const std::lock_guard lock(mutex_);
  try {
    refuse_when_closed();
    check_params(params, limits());
    if (scheduler_.is_full()) throw queue_full(params, limits());
  } catch (const Error&) {
    ++statistics_.refused;
    throw;
  }
  const auto outbox = std::make_shared<Outbox>(std::move(callback), wake_);
  statistics_.tokens_in += params.prompt.size();
  scheduler_.submit(std::make_shared<Request>(std::move(params), outbox));
  wake_->set();
  return outbox;
}

void Engine::refuse_when_closed() const {
  if (failure_) throw Error(*failure_);
  if (closing_) throw closed();
}

void Engine::check_ready() {
  const std::lock_guard lock(mutex_);
  refuse_when_closed();
}

Statistics Engine::statistics() {
  const std::lock_guard lock(mutex_);
  Statistics now = statistics_;
  now.active = static_cast<uint64_t>(scheduler_.num_active());
  now.queued = static_cast<uint64_t>(scheduler_.num_waiting());
  now.pages_total = static_cast<uint64_t>(scheduler_.pages().size());
  now.pages_used = static_cast<uint64_t>(scheduler_.pages().used());
  now.slots_total = static_cast<uint64_t>(scheduler_.slots().size());
  now.slots_used = static_cast<uint64_t>(scheduler_.slots().used());
  now.preemptions = static_cast<uint64_t>(scheduler_.preemptions());
  return now;
}

void Engine::pause(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  wake_->set();
}

bool Engine::close(std::chrono::milliseconds timeout) {
  if (Delivery::in_callback())
    throw Error({.code = plan_format::E1008,
                 .subject = "engine_close",
                 .found = "a call inside a callback, for which it would wait",
                 .needed = "a call from another thread",
                 .action = "cancel the requests in the callback and close the engine outside"});
  return shut_down(timeout);
}

bool Engine::shut_down(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_->set();
  }
  if (thread_.joinable()) thread_.join();
  return delivery_.close(timeout);
}

void Engine::run_between(const std::function<void(Executor&)>& run) {
  Job job{&run, {}};
  auto done = job.done.get_future();
  {
    const std::lock_guard lock(mutex_);
    refuse_when_closed();
    jobs_.push_back(&job);
    wake_->set();
  }
  done.get();
}

bool Engine::reserve(Sequence& sequence, int64_t rows_held) {
  const std::lock_guard lock(mutex_);
  refuse_when_closed();
  return scheduler_.reserve(sequence, rows_held);
}

void Engine::release(Sequence& sequence) {
  const std::lock_guard lock(mutex_);
  scheduler_.release(sequence);
}

}  // namespace dsv41c
