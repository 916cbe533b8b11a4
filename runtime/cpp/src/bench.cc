// Internal measurements for tools/bench; nothing here is on the way of a step.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "executor.h"

namespace dsv41c {
namespace {

void check_count(const char* name, int32_t count) {
  if (count >= 1) return;
  throw Error({.code = plan_format::E0901,
               .subject = name,
               .found = std::to_string(count),
               .needed = "at least 1",
               .action = "correct the call"});
}

}  // namespace

const std::string& Executor::graph_bench(int32_t replays) {
  check_count("replays", replays);
  const Entered entered(*backend_);
  bench_ = backend_->graph_bench(methods_, replays);
  backend_->fill_state();
  upload_check_.forget_steps();
  upload_check_.place_slots();
  backend_->synchronize();
  return bench_;
}

// Each step has run before the next one starts: what is timed is the call, not a full queue.
const std::string& Executor::step_bench(const dsv41c_step_inputs& inputs, int32_t steps) {
  check_count("steps", steps);
  std::vector<double> us(static_cast<size_t>(steps));
  for (double& each : us) {
    const auto begin = std::chrono::steady_clock::now();
    step(inputs);
    each = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    synchronize();
  }
  std::ranges::sort(us);
  const auto at = [&](size_t percent) { return us[std::min(us.size() - 1, us.size() * percent / 100)]; };
  bench_ =
      nlohmann::ordered_json{
          {"steps", steps}, {"min_us", us.front()}, {"median_us", at(50)}, {"p90_us", at(90)}, {"max_us", us.back()}}
          .dump();
  return bench_;
}

}  // namespace dsv41c
