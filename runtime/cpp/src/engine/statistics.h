// What an engine counts, and its Prometheus text.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/delivery.h"

namespace dsv41c {

// Counts of durations at most each bound.
class Histogram {
 public:
  static constexpr std::array<double, 12> BOUNDS = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                    0.1,   0.25,   0.5,   1,    5,     25};  // seconds

  void add(double seconds);
  void render(std::string& text, const char* name, const char* help) const;

 private:
  std::array<uint64_t, BOUNDS.size() + 1> counts_{};
  double sum_ = 0;
};

struct Statistics {
  uint64_t active = 0, queued = 0;
  uint64_t done = 0, cancelled = 0, failed = 0, refused = 0;
  uint64_t tokens_in = 0, tokens_out = 0;
  uint64_t pages_total = 0, pages_used = 0, slots_total = 0, slots_used = 0;
  uint64_t steps = 0, step_rows = 0, step_requests = 0, preemptions = 0;
  uint64_t planned_bytes = 0, weight_bytes = 0;
  Histogram first_token_seconds, token_seconds, request_seconds;  // of requests that ended by themselves

  void count(const Ending& ending);
  std::string prometheus() const;
};

}  // namespace dsv41c
