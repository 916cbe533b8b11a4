// Runs a method under checks: each launch on two patterns, and a verdict on every byte.
#include <algorithm>

#include "checked_method.h"
#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

constexpr uint8_t FIRST = CheckedMemory::PATTERNS[0], SECOND = CheckedMemory::PATTERNS[1];

[[noreturn]] void fail(const std::string& where, const CheckedRun& run, std::string found, std::string needed) {
  throw Error({.code = plan_format::E0805,
               .subject = "a check failed",
               .where = where + ", " + run.text(),
               .found = std::move(found),
               .needed = std::move(needed),
               .action = "correct the kernel or the plan; the state of this step's slots is now undefined"});
}

// A launch after all that it waits for, drawn from those that may run.
class AnyOrder {
 public:
  explicit AnyOrder(const Edges& edges) : waits_(edges.first.size() - 1, 0), followers_(waits_.size()) {
    for (size_t i = 0; i < waits_.size(); ++i) {
      for (int32_t source : edges.of(i)) followers_[static_cast<size_t>(source)].push_back(i);
      waits_[i] = edges.of(i).size();
      if (waits_[i] == 0) ready_.push_back(i);
    }
  }

  bool is_done() const { return ready_.empty(); }
  size_t next(std::mt19937_64& draws) {
    std::swap(ready_[draws() % ready_.size()], ready_.back());
    const size_t drawn = ready_.back();
    ready_.pop_back();
    for (size_t follower : followers_[drawn])
      if (--waits_[follower] == 0) ready_.push_back(follower);
    return drawn;
  }

 private:
  std::vector<size_t> waits_;
  std::vector<std::vector<size_t>> followers_;
  std::vector<size_t> ready_;
};

// What two runs of a launch wrote decides what its outputs hold from here on.
class Verdict {
 public:
  Verdict(const LaunchPlace& place, const CheckedRun& run, CheckedMemory& memory)
      : place_(place), run_(run), memory_(memory) {}

  void settle(const CheckedOutput& output, const uint8_t* first, const uint8_t* second) const {
    output.for_each_row([&](ByteRange range, int64_t row) {
      settle_row(output, range, row, first, second);
      first += range.bytes();
      second += range.bytes();
    });
  }

 private:
  void settle_row(const CheckedOutput& output, ByteRange range, int64_t row, const uint8_t* first,
                  const uint8_t* second) const {
    memory_.write(range.begin, first, range.bytes());
    if (!output.is_live(row, run_.rows)) {
      if (!output.keeps_pads()) memory_.forget(range);
      return;
    }
    if (std::equal(first, first + range.bytes(), second)) return;
    for (int64_t i = 0; i < range.bytes(); ++i) {
      if (first[i] == second[i]) continue;
      const int64_t at = range.begin + i;
      // A copy of what nobody has written is no use of it, except in state.
      if (output.is_state() || first[i] != FIRST || second[i] != SECOND)
        fail(place_.text(), run_,
             "row " + std::to_string(row) + " of " + (output.is_state() ? "state " : "value ") + output.name() +
                 " depends on memory that nobody has written, or on a pad row",
             "results of real rows that depend on what the launch declares and on nothing else");
      memory_.forget({at, at + 1});
    }
  }

  const LaunchPlace& place_;
  const CheckedRun& run_;
  CheckedMemory& memory_;
};

}  // namespace

void CheckedMethod::run(CheckedMemory& memory, const CheckedRun& run) const {
  std::mt19937_64 draws(run.seed + static_cast<uint64_t>(run.step));
  for (const BoundStep& step : steps_) run_step(step, memory, run, draws);
  check_ports(memory, run);
}

void CheckedMethod::run_step(const BoundStep& step, CheckedMemory& memory, const CheckedRun& run,
                             std::mt19937_64& draws) const {
  for (AnyOrder order(step.edges); !order.is_done();) run_twice(step.launches[order.next(draws)], memory, run);
}

void CheckedMethod::run_twice(const BoundLaunch& launch, CheckedMemory& memory, const CheckedRun& run) const {
  for (const CheckedOutput& output : launch.outputs)
    if (output.is_result())
      for (const ByteRange& range : output.ranges()) memory.forget(range);
  const bool is_reversed = memory.is_filled(SECOND);  // saves filling the stage
  Bytes first, second;
  if (is_reversed) second = run_once(launch, SECOND, memory, run);
  first = run_once(launch, FIRST, memory, run);
  if (!is_reversed) second = run_once(launch, SECOND, memory, run);
  const Verdict verdict(launch.place, run, memory);
  int64_t at = 0;
  for (const CheckedOutput& output : launch.outputs) {
    verdict.settle(output, first.data() + at, second.data() + at);
    at += output.bytes();
  }
}

// One run on a stage that holds the launch's inputs and a pattern. What it wrote, after the stage has been compared.
CheckedMethod::Bytes CheckedMethod::run_once(const BoundLaunch& bound, uint8_t pattern, CheckedMemory& memory,
                                             const CheckedRun& run) const {
  memory.fill_stage(pattern);
  const auto for_each = [](const auto& tensors, auto f) {
    for (const auto& tensor : tensors)
      for (const ByteRange& range : tensor.ranges()) f(tensor, range);
  };
  for_each(bound.inputs, [&](const CheckedInput&, ByteRange range) { memory.show(range, pattern); });
  launch(bound, plan_format::E0802, true);
  Bytes written;
  for_each(bound.outputs, [&](const CheckedOutput&, ByteRange range) {
    const std::span<const uint8_t> bytes = memory.staged(range);
    written.insert(written.end(), bytes.begin(), bytes.end());
    memory.show(range, pattern);
  });
  for_each(bound.inputs, [&](const CheckedInput& input, ByteRange range) {
    if (memory.changed(range, pattern) >= 0)
      fail(bound.place.text(), run, "the launch changed value " + input.name() + ", which it declares as in",
           "no write but to what is declared as out, inout or scratch");
  });
  for_each(bound.inputs, [&](const CheckedInput&, ByteRange range) { memory.hide(range, pattern); });
  for_each(bound.outputs, [&](const CheckedOutput&, ByteRange range) { memory.hide(range, pattern); });
  memory.hide(bound.scratch, pattern);
  if (const int64_t at = memory.changed(pattern); at >= 0)
    fail(bound.place.text(), run, "an undeclared write into " + place_.owner(at),
         "no write but to what is declared as out, inout or scratch");
  return written;
}

void CheckedMethod::check_ports(const CheckedMemory& memory, const CheckedRun& run) const {
  for (const CheckedOutput& port : ports_)
    port.for_each_row([&](ByteRange range, int64_t row) {
      if (!port.is_live(row, run.rows)) return;
      for (int64_t at = range.begin; at < range.end; ++at)
        if (memory.is_undefined(at))
          fail("method " + place_.method.name + ", " + std::to_string(rows()) + " rows", run,
               "row " + std::to_string(row) + " of output " + port.name() + " was never written",
               "every real row of an output to be written");
    });
}

}  // namespace dsv41c
