// Workers take requests with news; a worker is added whenever all others are inside callbacks.
#include "engine/delivery.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace dsv41c {
namespace {

thread_local bool inside_callback = false;

}  // namespace

void TokenRun::append(int32_t token, const TokenLogprobs* found) {
  tokens.push_back(token);
  if (!found) return;
  logprobs.push_back(found->chosen);
  top_ids.insert(top_ids.end(), found->ids.begin(), found->ids.end());
  top_logprobs.insert(top_logprobs.end(), found->values.begin(), found->values.end());
  num_top = static_cast<int64_t>(found->ids.size());
}

void Outbox::cancel() {
  cancelled_ = true;
  engine_->set();
}

bool Outbox::wait_delivered(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return delivered_signal_.wait_for(lock, timeout, [this] { return delivered_; });
}

Delivery::Delivery() : shared_(std::make_shared<Shared>()) {
  const std::lock_guard lock(shared_->mutex);
  add_worker();
}

bool Delivery::in_callback() { return inside_callback; }

void Delivery::post_token(const std::shared_ptr<Outbox>& outbox, int32_t token, const TokenLogprobs* logprobs) {
  {
    const std::lock_guard lock(outbox->mutex_);
    outbox->run_.append(token, logprobs);
    if (std::exchange(outbox->listed_, true)) return;
  }
  list(outbox);
}

void Delivery::post_ending(const std::shared_ptr<Outbox>& outbox, Ending ending) {
  {
    const std::lock_guard lock(outbox->mutex_);
    outbox->ending_ = std::move(ending);
    if (std::exchange(outbox->listed_, true)) return;
  }
  list(outbox);
}

void Delivery::list(const std::shared_ptr<Outbox>& outbox) {
  const std::lock_guard lock(shared_->mutex);
  shared_->ready.push_back(outbox);
  if (shared_->waiting >= static_cast<int64_t>(shared_->ready.size())) {
    shared_->work.notify_one();
    return;
  }
  try {
    add_worker();
  } catch (const std::system_error&) {  // no more threads: the next worker that is free takes it
  }
}

void Delivery::add_worker() {
  threads_.emplace_back([shared = shared_] { work(shared); });
  ++shared_->workers;
}

void Delivery::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    ++shared->waiting;
    shared->idle.notify_all();
    shared->work.wait(lock, [&] { return !shared->ready.empty() || shared->stopping; });
    --shared->waiting;
    if (shared->ready.empty()) break;
    const std::shared_ptr<Outbox> outbox = std::move(shared->ready.front());
    shared->ready.pop_front();
    lock.unlock();
    deliver(*outbox);
    lock.lock();
  }
  --shared->workers;
  shared->idle.notify_all();
}

// Until nothing is left to say. The lock is not held while the callback runs.
void Delivery::deliver(Outbox& outbox) {
  std::unique_lock lock(outbox.mutex_);
  while (!outbox.run_.tokens.empty() || outbox.ending_) {
    const bool last = outbox.run_.tokens.empty();
    TokenRun run = std::exchange(outbox.run_, {});
    outbox.run_.first_index = run.first_index + static_cast<int64_t>(run.tokens.size());
    const std::optional<Ending> ending = last ? std::exchange(outbox.ending_, {}) : std::nullopt;
    lock.unlock();
    inside_callback = true;
    const bool cancels = outbox.callback_(last ? Event{nullptr, &*ending} : Event{&run, nullptr});
    inside_callback = false;
    if (cancels) outbox.cancel();
    lock.lock();
    if (last) outbox.delivered_ = true;
  }
  outbox.listed_ = false;
  if (outbox.delivered_) outbox.delivered_signal_.notify_all();
}

bool Delivery::close(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  const bool done = shared_->idle.wait_for(
      lock, timeout, [&] { return shared_->ready.empty() && shared_->waiting == shared_->workers; });
  shared_->stopping = true;
  shared_->work.notify_all();
  std::vector<std::thread> threads = std::move(threads_);
  threads_.clear();
  lock.unlock();
  for (std::thread& thread : threads) done ? thread.join() : thread.detach();
  return done;
}

}  // namespace dsv41c
