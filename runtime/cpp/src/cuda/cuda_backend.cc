// Loading: device, memory, weights, cubins, graphs.
#include "cuda/cuda_backend.h"

#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "reservation.h"
#include "sequence.h"

namespace dsv41c::cuda {
namespace {

constexpr int64_t REGION_ALIGNMENT = plan_format::DEVICE_ALIGNMENT;  // of each region and weight

int64_t aligned(int64_t bytes) { return (bytes + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT; }

bool has_fallback(const Plan& plan, const Launch& launch) {
  return runs_kernel(plan, launch, [](const Kernel& kernel) { return kernel.kind != BodyKind::cuda; });
}

DeviceMemory allocate(const Driver& driver, int64_t bytes, int64_t& reserved) {
  Address address = 0;
  const Result result = driver.memory_allocate.address(&address, static_cast<size_t>(bytes));
  if (result == SUCCESS) {
    reserved += bytes;
    return {driver, address};
  }
  throw Error({.code = plan_format::E0701,
               .subject = "the plan's memory cannot be reserved",
               .found = driver.describe(driver.memory_allocate.name, result),
               .needed = std::to_string(bytes) + " bytes of device memory",
               .action = "free memory, or compile with smaller --max-num-seqs, --max-model-len or "
                         "--max-num-batched-tokens"});
}

}  // namespace

CudaBackend::CudaBackend(const Artifact& artifact, const KernelTable& kernels, const DeviceOptions& options)
    : driver_(options.cuda_driver),
      context_(driver_, options.device, artifact.plan().target),
      launch_singly_(options.launch_singly),
      mirror_(artifact.plan()),
      resources_(nullptr, Release{&context_}) {
  regions_.plan = &artifact.plan();
  const Current current(context_);
  reserve(artifact);
  engine_.emplace(Engine{context_, resources_->functions, kernels, regions_, stream()});
  fill_state();
  synchronize();  // the weights were copied on the same stream
}

CudaBackend::~CudaBackend() = default;

void CudaBackend::Release::operator()(Resources* resources) const noexcept {
  const CurrentForRelease current(*context);
  context->driver().stream_synchronize.address(resources->stream.get());
  delete resources;
}

void CudaBackend::reserve(const Artifact& artifact) {
  int64_t weight_bytes = 0;
  for (const StoredTensor* weight : artifact.weights()) weight_bytes += aligned(weight->bytes);
  const Memory& memory = plan().memory;
  const int64_t parts[] = {weight_bytes, memory.state_bytes, memory.bridge_bytes, memory.io_bytes, memory.arena_bytes};
  for (int64_t part : parts) planned_bytes_ += aligned(part);
  DeviceMemory reserved = allocate(driver_, std::max(planned_bytes_, REGION_ALIGNMENT), reserved_bytes_);
  auto* base = reinterpret_cast<uint8_t*>(reserved.get());
  resources_.reset(new Resources{
      std::move(reserved), make_stream(driver_), FunctionTable(driver_, plan(), artifact.path()), {}, {}});
  uint8_t** const regions[] = {&regions_.state, &regions_.bridges, &regions_.io, &regions_.arena};
  uint8_t* at = base + weight_bytes;
  for (size_t i = 0; i < std::size(regions); ++i) {
    *regions[i] = at;
    at += aligned(parts[i + 1]);
  }
  for (const StoredTensor* weight : artifact.weights()) {
    regions_.weights.push_back(base);
    driver_.call(driver_.copy_in_async, reinterpret_cast<Address>(base), static_cast<const void*>(weight->data),
                 static_cast<size_t>(weight->bytes), stream());
    base += aligned(weight->bytes);
  }
}

void CudaBackend::reserve_inputs(int64_t bytes) { resources_->ring.emplace(driver_, bytes); }

std::unique_ptr<BoundMethod> CudaBackend::bind(const Method& method, const RunRows& rows, Binding kind) {
  const bool with_graphs = kind == Binding::bucket && !launch_singly_;
  auto bound = std::make_unique<CudaBoundMethod>(*engine_, method, rows,
                                                 with_graphs ? LaunchMode::graphs : LaunchMode::singly, stats_);
  if (kind == Binding::bucket) {
    pending_.push_back(bound.get());
    MethodStats& stats = method_stats_[method.name];
    stats.graphs += bound->num_graphs();
    stats.nodes += bound->num_nodes();
    stats.fallbacks = bound->num_fallbacks();
  }
  return bound;
}

// All graphs at once, so that what they take of the device can be told from anything else.
void CudaBackend::finish_binding() {
  stats_.device_bytes += measure_graphs(pending_, stats_);
  pending_.clear();
}

int64_t CudaBackend::free_bytes() const {
  size_t free = 0, total = 0;
  driver_.call(driver_.memory_info, &free, &total);
  return static_cast<int64_t>(free);
}

int64_t CudaBackend::measure_graphs(std::span<CudaBoundMethod* const> bound, GraphStats& stats) {
  const int64_t before = free_bytes();
  for (CudaBoundMethod* each : bound) each->instantiate(stats);
  {
    const Timed timed(stats.upload_s);
    for (CudaBoundMethod* each : bound) each->upload();
    synchronize();
  }
  return before - free_bytes();
}

// torch's allocator keeps what it once held: a run at the bound with fallbacks sizes its pool for all later steps.
int64_t CudaBackend::warm_up_rows(const Method& method, int64_t smallest, int64_t max_rows) const {
  for (const Step& step : method.steps)
    for (const Launch& launch : step.launches)
      if (has_fallback(plan(), launch)) return max_rows;
  return smallest;
}

nlohmann::ordered_json CudaBackend::report() const {
  using Json = nlohmann::ordered_json;
  Json methods = Json::object();
  for (const auto& [name, stats] : method_stats_)
    methods[name] = {{"graphs", stats.graphs}, {"nodes", stats.nodes}, {"fallback_launches", stats.fallbacks}};
  return {{"device", context_.device()},
          {"name", context_.device_name()},
          {"compute_capability", context_.capability()},
          {"driver_version", context_.driver_version()},
          {"mode", launch_singly_ ? "eager" : "graphs"},
          {"modules", resources_->functions.num_modules()},
          {"upload_ring_bytes", resources_->ring->bytes()},
          {"graphs", stats_.graphs},
          {"nodes", stats_.nodes},
          {"edges", stats_.edges},
          {"bytes_per_node", stats_.nodes ? stats_.device_bytes / stats_.nodes : 0},
          {"bind_s", stats_.bind_s},
          {"add_s", stats_.add_s},
          {"instantiate_s", stats_.instantiate_s},
          {"upload_s", stats_.upload_s},
          {"methods", methods}};
}

}  // namespace dsv41c::cuda
