#include "engine/statistics.h"

#include <cstdio>

namespace dsv41c {
namespace {

void head(std::string& text, const char* name, const char* kind, const char* help) {
  text += std::string("# HELP dsv41c_") + name + ' ' + help + "\n# TYPE dsv41c_" + name + ' ' + kind + '\n';
}

void line(std::string& text, const char* name, const char* kind, const char* help, uint64_t value) {
  head(text, name, kind, help);
  text += std::string("dsv41c_") + name + ' ' + std::to_string(value) + '\n';
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

void Histogram::add(double seconds) {
  size_t i = 0;
  while (i < BOUNDS.size() && seconds > BOUNDS[i]) ++i;
  ++counts_[i];
  sum_ += seconds;
}

void Histogram::render(std::string& text, const char* name, const char* help) const {
  head(text, name, "histogram", help);
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    text += std::string("dsv41c_") + name + "_bucket{le=\"" + (i < BOUNDS.size() ? number(BOUNDS[i]) : "+Inf") +
            "\"} " + std::to_string(below) + '\n';
  }
  text += std::string("dsv41c_") + name + "_sum " + number(sum_) + '\n';
  text += std::string("dsv41c_") + name + "_count " + std::to_string(below) + '\n';
}

void Statistics::count(const Ending& ending) {
  tokens_out += static_cast<uint64_t>(ending.num_tokens);
  if (ending.finish == Finish::error) {
    ++failed;
  } else if (ending.finish == Finish::cancel || ending.finish == Finish::deadline) {
    ++cancelled;
  } else {
    ++done;
    const double first = 1e-9 * static_cast<double>(ending.queue_ns + ending.prefill_ns);
    const double after = 1e-9 * static_cast<double>(ending.decode_ns);
    first_token_seconds.add(first);
    request_seconds.add(first + after);
    if (ending.num_tokens > 1) token_seconds.add(after / static_cast<double>(ending.num_tokens - 1));
  }
}

std::string Statistics::prometheus() const {
  std::string text;
  line(text, "requests_active", "gauge", "Requests that hold a slot.", active);
  line(text, "requests_queued", "gauge", "Requests that wait for a slot.", queued);
  head(text, "requests_total", "counter", "Requests that ended, by how.");
  for (const auto& [name, value] : {std::pair{"done", done}, {"cancelled", cancelled}, {"failed", failed}})
    text += std::string("dsv41c_requests_total{end=\"") + name + "\"} " + std::to_string(value) + '\n';
  line(text, "requests_refused_total", "counter", "Requests that were not accepted.", refused);
  line(text, "prompt_tokens_total", "counter", "Prompt tokens of accepted requests.", tokens_in);
  line(text, "generation_tokens_total", "counter", "Tokens of answers that ended.", tokens_out);
  line(text, "kv_pages", "gauge", "Pages of the engine.", pages_total);
  line(text, "kv_pages_used", "gauge", "Pages that requests and sessions hold.", pages_used);
  line(text, "slots", "gauge", "Slots of the engine.", slots_total);
  line(text, "slots_used", "gauge", "Slots that requests and sessions hold.", slots_used);
  line(text, "steps_total", "counter", "Steps.", steps);
  line(text, "step_rows_total", "counter", "Rows of all steps.", step_rows);
  line(text, "step_requests_total", "counter", "Requests with rows in a step, of all steps.", step_requests);
  line(text, "preemptions_total", "counter", "Times that a request gave up its pages.", preemptions);
  line(text, "planned_bytes", "gauge", "Memory beside the weights.", planned_bytes);
  line(text, "weight_bytes", "gauge", "Weights.", weight_bytes);
  first_token_seconds.render(text, "time_to_first_token_seconds", "From submission to the first token.");
  token_seconds.render(text, "time_per_output_token_seconds", "Mean time of each further token of a request.");
  request_seconds.render(text, "e2e_request_latency_seconds", "From submission to the end.");
  return text;
}

}  // namespace dsv41c
