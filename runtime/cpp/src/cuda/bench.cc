// Bench of graphs: the launches of every bucket built node by node, captured from the stream, and cut into pieces.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cuda/cuda_backend.h"
#include "loaded_method.h"

namespace dsv41c::cuda {
namespace {

using Json = nlohmann::ordered_json;
using Bound = std::vector<std::unique_ptr<CudaBoundMethod>>;
constexpr int64_t PIECE_NODES = 25;  // about one layer: the same launches as about one graph a layer

Json cost_json(const GraphStats& stats, const char* first) {
  return {{"graphs", stats.graphs},     {"nodes", stats.nodes},
          {"edges", stats.edges},       {"bind_s", stats.bind_s},
          {first, stats.add_s},         {"instantiate_s", stats.instantiate_s},
          {"upload_s", stats.upload_s}, {"bytes_per_node", stats.nodes ? stats.device_bytes / stats.nodes : 0}};
}

// Device time of one run, in microseconds, as events around it see it.
class Stopwatch {
 public:
  Stopwatch(const Driver& driver, StreamHandle stream)
      : driver_(driver),
        stream_(stream),
        begin_(make_event(driver, EVENT_DEFAULT)),
        end_(make_event(driver, EVENT_DEFAULT)) {}

  double time(const BoundMethod& bound) const {
    driver_.call(driver_.event_record, begin_.get(), stream_);
    bound.run();
    driver_.call(driver_.event_record, end_.get(), stream_);
    driver_.call(driver_.event_synchronize, end_.get());
    float ms = 0;
    driver_.call(driver_.event_elapsed, &ms, begin_.get(), end_.get());
    return ms * 1e3;
  }

 private:
  const Driver& driver_;
  StreamHandle stream_;
  Event begin_, end_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

std::string CudaBackend::graph_bench(std::span<const std::unique_ptr<LoadedMethod>> methods, int32_t replays) {
  struct Kind {
    LaunchMode mode;
    int64_t max_nodes;
    GraphStats stats{};
    Bound bound{};
  };
  Kind kinds[] = {{LaunchMode::graphs, 0}, {LaunchMode::captured, 0}, {LaunchMode::graphs, PIECE_NODES}};
  for (Kind& kind : kinds) {
    std::vector<CudaBoundMethod*> all;
    for (const auto& method : methods)
      for (int64_t rows : method->method().buckets) {
        kind.bound.push_back(std::make_unique<CudaBoundMethod>(*engine_, method->method(), RunRows{rows}, kind.mode,
                                                               kind.stats, kind.max_nodes));
        all.push_back(kind.bound.back().get());
      }
    kind.stats.device_bytes = measure_graphs(all, kind.stats);
  }
  const Stopwatch stopwatch(driver_, stream());
  Json replay = Json::array();
  size_t index = 0;
  for (const auto& method : methods)
    for (int64_t rows : method->method().buckets) {
      begin_step();
      method->write_inputs({}, {.launched = rows});
      std::vector<double> us[3];
      for (int32_t i = 0; i < replays + 2; ++i)  // in turn, so that clocks and caches treat them alike; two warm up
        for (size_t k = 0; k < 3; ++k) {
          const double time = stopwatch.time(*kinds[k].bound[index]);
          if (i >= 2) us[k].push_back(time);
        }
      const CudaBoundMethod &built = *kinds[0].bound[index], &pieces = *kinds[2].bound[index++];
      const int64_t breaks = pieces.num_graphs() - built.num_graphs();
      const double whole = median(us[0]), cut = median(us[2]);
      replay.push_back({{"method", method->method().name},
                        {"rows", rows},
                        {"nodes", built.num_nodes()},
                        {"graphs", built.num_graphs()},
                        {"built_us", whole},
                        {"captured_us", median(us[1])},
                        {"pieces", pieces.num_graphs()},
                        {"pieces_us", cut},
                        {"break_us", breaks > 0 ? Json((cut - whole) / static_cast<double>(breaks)) : Json()}});
    }
  return Json{{"built", cost_json(kinds[0].stats, "add_s")},
              {"captured", cost_json(kinds[1].stats, "capture_s")},
              {"replay", replay}}
      .dump();
}

}  // namespace dsv41c::cuda
