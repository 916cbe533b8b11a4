// Who waits, who holds a slot, and which rows the next step gets. One thread at a time.
#pragma once

#include <functional>
#include <vector>

#include "engine/request.h"

namespace dsv41c {

struct StepPart {
  RequestPtr request;
  int64_t count = 0;  // next rows of its sequence

  bool gives_token() const { return count == request->sequence.rows_left(); }
};

class Scheduler {
 public:
  explicit Scheduler(EngineLimits limits);

  const EngineLimits& limits() const { return limits_; }
  const Pool& slots() const { return slots_; }
  const Pool& pages() const { return pages_; }
  int64_t num_active() const { return static_cast<int64_t>(active_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }
  // Requests may wait for a slot up to the queue's limit; those that will get a free one do not count.
  bool is_full() const { return num_active() + num_waiting() >= limits_.slots + limits_.queue; }

  void submit(const RequestPtr& request);
  // The parts of a step: one row of each decoding request first, then prompts, by priority and arrival. Gives slots
  // and pages to those who wait, and takes them from the last ones when decoding requests run out of pages.
  std::vector<StepPart> next_step();
  void end(const RequestPtr& request);  // gives back what it holds
  // In the order of service.
  void for_each(const std::function<void(const RequestPtr&)>& visit) const;

  // For a sequence beside the requests; false, and nothing is taken, when slots or pages do not suffice.
  bool reserve(Sequence& sequence, int64_t rows_held);
  void release(Sequence& sequence) { give_back(sequence, slots_, pages_); }

 private:
  void grow();
  void admit();
  void preempt(const RequestPtr& request);

  const EngineLimits limits_;
  Pool slots_, pages_;
  std::vector<RequestPtr> waiting_, active_;  // both in the order of service
  uint64_t num_submitted_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace dsv41c
