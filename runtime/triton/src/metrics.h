// The engine's numbers as metrics of the server, labelled with model, version and instance.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calls.h"

namespace dsv41c_triton {

// One for each number; null where the server has no metrics.
using Families = std::vector<std::shared_ptr<TRITONSERVER_MetricFamily>>;
Families metric_families();

class Metrics {
 public:
  Metrics(const Families& families, const std::vector<std::pair<const char*, std::string>>& labels);
  void update(dsv_engine* engine) noexcept;

 private:
  std::vector<Owned<TRITONSERVER_Metric>> metrics_;
  dsv_stats last_;
};

}  // namespace dsv41c_triton
