// One request of an engine, from its submission to its ending.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/delivery.h"
#include "engine/params.h"
#include "engine/sequence.h"

namespace dsv41c {

using Clock = std::chrono::steady_clock;

// Everything but `outbox` is guarded by the engine's lock, or belongs to its thread while it is active.
struct Request {
  Request(GenerateParams given, std::shared_ptr<Outbox> events) : params(std::move(given)), outbox(std::move(events)) {
    sequence.tokens = params.prompt;
    sequence.prompt_length = sequence.length();
    if (params.deadline_ms > 0) deadline = submitted + std::chrono::milliseconds(params.deadline_ms);
  }

  int64_t num_generated() const { return sequence.length() - sequence.prompt_length; }

  const GenerateParams params;
  uint64_t number = 0;  // order of arrival
  const Clock::time_point submitted = Clock::now();
  std::optional<Clock::time_point> deadline, started, first_token;
  Sequence sequence;
  int64_t preemptions = 0;
  const std::shared_ptr<Outbox> outbox;
};

using RequestPtr = std::shared_ptr<Request>;

// Whether `a` is served before `b`.
inline bool before(const RequestPtr& a, const RequestPtr& b) {
  return a->params.priority != b->params.priority ? a->params.priority < b->params.priority : a->number < b->number;
}

}  // namespace dsv41c
