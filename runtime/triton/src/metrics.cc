#include "metrics.h"

namespace dsv41c_triton {

namespace {

struct Number {
  const char* name;
  uint64_t dsv_stats::* field;
  const char* help;
  TRITONSERVER_MetricKind kind = TRITONSERVER_METRIC_KIND_COUNTER;
};

constexpr auto GAUGE = TRITONSERVER_METRIC_KIND_GAUGE;
constexpr Number NUMBERS[] = {
    {"dsv41c_requests_active", &dsv_stats::requests_active, "Requests that have a slot", GAUGE},
    {"dsv41c_requests_queued", &dsv_stats::requests_queued, "Requests that wait for a slot", GAUGE},
    {"dsv41c_requests_done_total", &dsv_stats::requests_done, "Requests that ended by themselves"},
    {"dsv41c_requests_cancelled_total", &dsv_stats::requests_cancelled, "Requests cancelled, deadlines included"},
    {"dsv41c_requests_failed_total", &dsv_stats::requests_failed, "Requests that ended with an error"},
    {"dsv41c_requests_refused_total", &dsv_stats::requests_refused, "Requests that were never accepted"},
    {"dsv41c_prompt_tokens_total", &dsv_stats::tokens_in, "Prompt tokens of accepted requests"},
    {"dsv41c_generated_tokens_total", &dsv_stats::tokens_out, "Tokens of answers"},
    {"dsv41c_kv_pages", &dsv_stats::kv_pages_total, "Pages of the cache", GAUGE},
    {"dsv41c_kv_pages_used", &dsv_stats::kv_pages_used, "Pages in use", GAUGE},
    {"dsv41c_slots", &dsv_stats::slots_total, "Requests that can run at the same time", GAUGE},
    {"dsv41c_slots_used", &dsv_stats::slots_used, "Slots in use", GAUGE},
    {"dsv41c_steps_total", &dsv_stats::steps, "Steps of the engine"},
    {"dsv41c_step_rows_total", &dsv_stats::step_rows, "Rows of all steps"},
    {"dsv41c_step_requests_total", &dsv_stats::step_requests, "Requests of all steps: by steps, the occupancy"},
    {"dsv41c_preemptions_total", &dsv_stats::preemptions, "Requests that gave up their pages for a while"}};

}  // namespace

Families metric_families() {
  Families families;
  for (const Number& number : NUMBERS) {
    TRITONSERVER_MetricFamily* family = nullptr;
    forget(TRITONSERVER_MetricFamilyNew(&family, number.kind, number.name, number.help));
    families.push_back(Owned<TRITONSERVER_MetricFamily>(family));
  }
  return families;
}

Metrics::Metrics(const Families& families, const std::vector<std::pair<const char*, std::string>>& labels) {
  DSV_INIT(&last_);
  std::vector<Owned<TRITONSERVER_Parameter>> owned;
  std::vector<const TRITONSERVER_Parameter*> parameters;
  for (const auto& [name, value] : labels) {
    owned.emplace_back(TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value.c_str()));
    parameters.push_back(owned.back().get());
  }
  for (const auto& family : families) {
    TRITONSERVER_Metric* metric = nullptr;
    if (family != nullptr) forget(TRITONSERVER_MetricNew(&metric, family.get(), parameters.data(), parameters.size()));
    metrics_.emplace_back(metric);
  }
}

void Metrics::update(dsv_engine* engine) noexcept {
  dsv_stats stats;
  DSV_INIT(&stats);
  if (dsv_status* status = api().engine_stats(engine, &stats)) return api().status_free(status);
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const auto field = NUMBERS[i].field;
    TRITONSERVER_Metric* metric = metrics_[i].get();
    if (metric == nullptr) continue;
    forget(NUMBERS[i].kind == GAUGE
               ? TRITONSERVER_MetricSet(metric, static_cast<double>(stats.*field))
               : TRITONSERVER_MetricIncrement(metric, static_cast<double>(stats.*field - last_.*field)));
  }
  last_ = stats;
}

}  // namespace dsv41c_triton
