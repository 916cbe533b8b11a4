// Continuous batching over one executor: requests come from any thread, one thread runs the steps.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/scheduler.h"
#include "engine/statistics.h"
#include "error.h"
#include "executor.h"

namespace dsv41c {

enum class LogLevel { error, warning, info };

struct EngineOptions {
  LowerLimits lower;
  bool paused = false;
  std::function<void(LogLevel, const std::string&)> log = [](LogLevel, const std::string&) {};
};

class Engine {
 public:
  // The executor is the engine's alone until it is closed.
  Engine(std::shared_ptr<Executor> executor, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineLimits& limits() const { return scheduler_.limits(); }

  // Queues a request, whose ending comes through the outbox. E0901, E0902, E1001 (never fits), E1002 (queue full),
  // E1005 (closed), or the error that ended the engine's service; then there is no event.
  std::shared_ptr<Outbox> submit(GenerateParams params, Outbox::Callback callback);

  void check_ready();  // throws the error that ended the service, or E1005
  Statistics statistics();
  void pause(bool paused);

  // Ends all requests, then waits for callbacks; false when they take longer. E1008 inside a callback.
  bool close(std::chrono::milliseconds timeout);

  // For sessions. `run_between` runs `job` on the engine's thread between two steps and returns when it is done, or
  // throws what it throws, or E1005.
  void run_between(const std::function<void(Executor&)>& job);
  bool reserve(Sequence& sequence, int64_t rows_held);
  void release(Sequence& sequence);

 private:
  struct Job {
    const std::function<void(Executor&)>* run;
    std::promise<void> done;
  };

  struct Choice {
    int32_t token = 0;
    bool on_device = false;
    std::optional<TokenLogprobs> logprobs = {};
    std::optional<Error> error = {};  // instead of a token
  };

  bool shut_down(std::chrono::milliseconds timeout);
  // The thread, in engine_loop.cc. With `lock` it gives the lock back while it works or sleeps.
  void serve();
  void take_turn(std::unique_lock<std::mutex>& lock);
  bool run_job(std::unique_lock<std::mutex>& lock);
  void end_cancelled_and_late();
  std::optional<Clock::time_point> next_deadline() const;
  void run_step(const std::vector<StepPart>& parts, std::unique_lock<std::mutex>& lock);
  std::vector<Choice> choose_tokens(const std::vector<StepPart>& parts);
  Choice choose(const Request& request, int32_t device_token, Logits logits) const;
  std::vector<int32_t> ending_ids(const GenerateParams& params) const;
  bool ends_answer(const GenerateParams& params, int32_t token) const;  // whether it is one of ending_ids
  void take_token(const RequestPtr& request, const Choice& choice);
  void end(const RequestPtr& request, Finish finish, const Error* error = nullptr);
  void end_all(const Error& error, Finish finish);
  void fail(const Error& error);
  void refuse_when_closed() const;

  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  EngineOptions options_;
  std::shared_ptr<Executor> executor_;  // of the thread, until it ends
  std::mutex mutex_;                    // of all below
  Scheduler scheduler_;
  Statistics statistics_;
  std::deque<Job*> jobs_;
  bool paused_, closing_ = false;
  std::unique_ptr<Error> failure_;
  StepRows rows_;
  Delivery delivery_;
  std::thread thread_;
};

}  // namespace dsv41c
