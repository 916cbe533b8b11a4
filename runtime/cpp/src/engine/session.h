// Steps of one sequence, one call at a time, between the steps of an engine.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/outputs.h"

namespace dsv41c {

struct SessionOutputs {
  std::vector<float> logits;     // [rows, vocabulary]
  std::vector<int32_t> choices;  // [rows]: the largest logits
};

class Session {
 public:
  // Takes a slot and pages for `max_tokens`, at most the context; E1001 when they are not free.
  Session(std::shared_ptr<Engine> engine, int64_t max_tokens);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int64_t vocabulary() const { return engine_->limits().vocabulary; }

  // Appends tokens and runs them; of `rows`, ascending indices of them, the logits. E1007 when another thread is
  // inside a call. After any other error than E0801, E0901 and E0902 the tokens are not there.
  SessionOutputs run(std::span<const int32_t> tokens, std::span<const int32_t> rows);
  void truncate(int64_t length);  // keeps the first tokens; the next run computes them again

 private:
  class Use;  // of the session by this thread

  void check(std::span<const int32_t> tokens, std::span<const int32_t> rows) const;
  void run_chunk(Executor& executor, std::span<const int64_t> wanted, SessionOutputs& outputs);

  std::shared_ptr<Engine> engine_;
  int64_t max_tokens_;
  Sequence sequence_;
  StepRows rows_;
  std::atomic<bool> busy_ = false;
};

}  // namespace dsv41c
