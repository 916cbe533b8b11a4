// Admission, growth by a page, preemption by recomputation, chunks of prompts.
#include "engine/scheduler.h"

#include <algorithm>

namespace dsv41c {
namespace {

void insert(std::vector<RequestPtr>& list, const RequestPtr& request) {
  list.insert(std::ranges::upper_bound(list, request, before), request);
}

}  // namespace

Scheduler::Scheduler(EngineLimits limits) : limits_(std::move(limits)), slots_(limits_.slots), pages_(limits_.pages) {}

void Scheduler::submit(const RequestPtr& request) {
  request->number = num_submitted_++;
  insert(waiting_, request);
}

std::vector<StepPart> Scheduler::next_step() {
  grow();
  admit();
  std::vector<StepPart> parts;
  int64_t rows = limits_.rows, kept = limits_.kept_rows;
  for (const RequestPtr& request : active_)
    if (request->sequence.decodes()) {
      parts.push_back({request, 1});
      --rows, --kept;
    }
  for (const RequestPtr& request : active_) {
    const Sequence& sequence = request->sequence;
    if (sequence.decodes()) continue;
    const int64_t count = rows_within(sequence, rows, kept, limits_);
    if (count == 0) break;
    parts.push_back({request, count});
    rows -= count;
    kept -= count - num_left_out(sequence, count, limits_);
  }
  return parts;
}

// A request that is not admitted holds up those behind it, so that a large one gets its turn.
void Scheduler::admit() {
  while (!waiting_.empty()) {
    const RequestPtr request = waiting_.front();
    if (!reserve(request->sequence, request->sequence.length())) return;
    waiting_.erase(waiting_.begin());
    insert(active_, request);
  }
}

// The first in the order of service always gets its page: every request fits into an engine of its own.
void Scheduler::grow() {
  for (size_t i = 0; i < active_.size(); ++i) {
    const RequestPtr request = active_[i];
    const auto held = static_cast<int64_t>(request->sequence.pages.size());
    while (held < limits_.pages_for(request->sequence.length()) && pages_.free() == 0) {
      const RequestPtr last = active_.back();
      preempt(last);
      if (last == request) return;
    }
    take_pages(request->sequence, request->sequence.length(), pages_, limits_);
  }
}

void Scheduler::preempt(const RequestPtr& request) {
  end(request);
  ++request->preemptions;
  ++preemptions_;
  insert(waiting_, request);
}

void Scheduler::end(const RequestPtr& request) {
  give_back(request->sequence, slots_, pages_);
  std::erase(active_, request);
  std::erase(waiting_, request);
}

void Scheduler::for_each(const std::function<void(const RequestPtr&)>& visit) const {
  for (const RequestPtr& request : std::vector(active_)) visit(request);
  for (const RequestPtr& request : std::vector(waiting_)) visit(request);
}

bool Scheduler::reserve(Sequence& sequence, int64_t rows_held) {
  if (slots_.free() == 0 || pages_.free() < limits_.pages_for(rows_held)) return false;
  sequence.slot = slots_.take();
  take_pages(sequence, rows_held, pages_, limits_);
  return true;
}

}  // namespace dsv41c
