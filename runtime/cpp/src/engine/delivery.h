// Events on their way to callbacks, on threads of their own: no callback holds up the engine or another request.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/sampler.h"
#include "engine/wake.h"
#include "error.h"

namespace dsv41c {

enum class Finish { none, stop, length, cancel, error, deadline };

// What a request generated and its consumer has not seen yet.
struct TokenRun {
  int64_t first_index = 0;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;   // empty unless asked for
  std::vector<int32_t> top_ids;  // [tokens, num_top]
  std::vector<float> top_logprobs;
  int64_t num_top = 0;

  void append(int32_t token, const TokenLogprobs* logprobs);
};

struct Ending {
  Finish finish = Finish::none;
  std::shared_ptr<const Error> error;  // null for stop and length
  int64_t num_tokens = 0;
  int64_t preemptions = 0;
  uint64_t queue_ns = 0, prefill_ns = 0, decode_ns = 0;
};

struct Event {
  const TokenRun* run = nullptr;  // one of the two
  const Ending* ending = nullptr;
};

// One request's way to its consumer. Tokens that come while the callback runs are joined: what waits is at most the
// answer itself.
class Outbox {
 public:
  using Callback = std::function<bool(const Event&)>;  // true cancels the request; must not throw

  Outbox(Callback callback, std::shared_ptr<Wake> engine)
      : callback_(std::move(callback)), engine_(std::move(engine)) {}

  void cancel();
  bool is_cancelled() const { return cancelled_; }
  bool wait_delivered(std::chrono::milliseconds timeout);  // whether the callback of the ending has returned

 private:
  friend class Delivery;

  const Callback callback_;
  const std::shared_ptr<Wake> engine_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable delivered_signal_;
  TokenRun run_;
  std::optional<Ending> ending_;
  bool listed_ = false;  // with a worker or about to be
  bool delivered_ = false;
};

class Delivery {
 public:
  Delivery();
  ~Delivery() { close(std::chrono::milliseconds(0)); }
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  void post_token(const std::shared_ptr<Outbox>& outbox, int32_t token, const TokenLogprobs* logprobs);
  void post_ending(const std::shared_ptr<Outbox>& outbox, Ending ending);

  // Waits until all that was posted is delivered; false when that takes longer: the rest is delivered still.
  bool close(std::chrono::milliseconds timeout);

  static bool in_callback();  // whether this thread is inside a callback

 private:
  struct Shared {  // outlives the object while a callback runs
    std::mutex mutex;
    std::condition_variable work, idle;
    std::deque<std::shared_ptr<Outbox>> ready;
    int64_t workers = 0, waiting = 0;
    bool stopping = false;
  };

  void list(const std::shared_ptr<Outbox>& outbox);
  void add_worker();
  static void work(const std::shared_ptr<Shared>& shared);
  static void deliver(Outbox& outbox);

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;  // guarded by shared_->mutex
};

}  // namespace dsv41c
