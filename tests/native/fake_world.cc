// The fake driver's memory of what happened, and what a test sets and reads.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fake_cuda.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

World& world() {
  static World instance;
  return instance;
}

int64_t World::used() const {
  int64_t bytes = graph_bytes;
  for (const auto& [address, size] : sizes) bytes += size;
  return bytes;
}

bool World::is_idle() const {
  return std::ranges::all_of(streams, [](const Stream* stream) { return stream->queue.empty(); });
}

void World::enqueue(Stream* stream, std::function<void()> work) {
  stream->queue.push_back(std::move(work));
  ++stream->enqueued;
}

void Stream::run_until(int64_t moment) {
  while (executed < moment) {
    queue.front()();
    queue.pop_front();
    ++executed;
  }
}

}  // namespace fake

using fake::world;
using fake::World;
using Json = nlohmann::json;

EXPORT void fake_cuda_reset() { world() = World(); }
EXPORT void fake_cuda_set(int devices, int major, int minor, int64_t memory) {
  World& w = world();
  w.devices = devices, w.major = major, w.minor = minor, w.memory = memory;
}
// The n-th call from here returns `result`; 0 none.
EXPORT void fake_cuda_fail(int64_t n, int result) {
  world().fail_at = n > 0 ? world().calls + n : 0;
  world().fail_with = result;
}
EXPORT const char* fake_cuda_report() {
  static std::string text;
  const World& w = world();
  Json live = Json::object();
  for (const auto& [handle, kind] : w.live) live[kind] = live.value(kind, 0) + 1;
  Json graphs = Json::array();
  for (const std::string& graph : w.graphs) graphs.push_back(Json::parse(graph));
  Json maps = Json::array();
  for (const fake::EncodedMap& m : w.maps)
    maps.push_back({{"type", m.type},
                    {"address", m.address},
                    {"sizes", m.sizes},
                    {"strides", m.strides},
                    {"box", m.box},
                    {"steps", m.steps},
                    {"modes", {m.interleave, m.swizzle, m.promotion, m.fill}}});
  text = Json{{"maps", maps},           {"calls", w.calls},           {"live", live},
              {"retained", w.retained}, {"depth", w.contexts.size()}, {"log", w.log},
              {"executed", w.executed}, {"violations", w.violations}, {"graphs", graphs}}
             .dump();
  return text.c_str();
}
