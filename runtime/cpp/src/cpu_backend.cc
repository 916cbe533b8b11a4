// Binds launches with their providers at addresses of this process.
#include "cpu_backend.h"

#include <cstring>

#include "dsv41c/plan_generated.h"
#include "provider_launch.h"

namespace dsv41c {
namespace {

class CpuBoundMethod final : public BoundMethod {
 public:
  CpuBoundMethod(const Method& method, const RunRows& rows, const Regions& regions, const KernelTable& kernels,
                 std::string_view code)
      : BoundMethod(rows.count) {
    for (const Step& step : method.steps)
      for (const Launch& launch : step.launches) {
        const LaunchTensors tensors(method, launch, rows, regions);
        const LaunchPlace place{&method, &launch, rows.count};
        const Kernel& kernel = regions.plan->kernels[static_cast<size_t>(launch.kernel)];
        if (kernel.kind == BodyKind::sequence)
          add_parts(*regions.plan, kernel, tensors.binding, place, kernels, code);
        else
          launches_.emplace_back(kernels[launch.kernel], kernel.op, tensors.binding, place, code);
      }
  }

  void run() const override {
    ProviderMessage message;
    for (const ProviderLaunch& launch : launches_) launch.run(message);
  }

 private:
  void add_parts(const Plan& plan, const Kernel& sequence, const dsv41c_binding& binding, LaunchPlace place,
                 const KernelTable& kernels, std::string_view code) {
    SequenceTensors tensors(plan, sequence, binding, place, code);
    for (size_t i = 0; i < sequence.parts.size(); ++i) {
      const int64_t kernel = sequence.parts[i].kernel;
      place.part = static_cast<int64_t>(i);
      launches_.emplace_back(kernels[kernel], plan.kernels[static_cast<size_t>(kernel)].op, tensors.part(i), place,
                             code);
    }
  }

  std::vector<ProviderLaunch> launches_;  // the parts of a sequence one after another
};

}  // namespace

CpuBackend::CpuBackend(const Artifact& artifact, const KernelTable& kernels)
    : kernels_(kernels), reservation_(artifact.plan().memory) {
  regions_ = {&artifact.plan(),  reservation_.state(), reservation_.bridges(),
              reservation_.io(), reservation_.arena(), {}};
  // Mapped read-only; the verifier has refused every plan that writes a weight.
  for (const StoredTensor* weight : artifact.weights()) regions_.weights.push_back(const_cast<uint8_t*>(weight->data));
  fill_state();
}

std::unique_ptr<BoundMethod> CpuBackend::bind(const Method& method, const RunRows& rows, Binding kind) {
  const auto code = kind == Binding::bucket ? plan_format::E0703 : plan_format::E0802;
  return std::make_unique<CpuBoundMethod>(method, rows, regions_, kernels_, code);
}

void CpuBackend::poison(int32_t byte) {
  std::memset(reservation_.arena(), byte, static_cast<size_t>(reservation_.arena_bytes()));
}

void CpuBackend::write_input(const InputPort& port, const int32_t* list, const InputRows& rows) {
  port.fill(port.data, list, rows);
}

void CpuBackend::copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuBackend::fill_state() { dsv41c::fill_state(plan(), reservation_.state()); }

const int32_t* CpuBackend::host_state(const State& state) {
  return reinterpret_cast<const int32_t*>(reservation_.state() + state.offset);
}

void* CpuBackend::read_state(int64_t index) {
  return reservation_.state() + plan().state[static_cast<size_t>(index)].offset;
}

void CpuBackend::write_state(int64_t index, const void* data) {
  const State& state = plan().state[static_cast<size_t>(index)];
  std::memcpy(read_state(index), data, static_cast<size_t>(state_bytes(state)));
}

void CpuBackend::write_state_parts(std::span<const StatePart> parts) {
  for (const StatePart& part : parts) {
    const int64_t item = item_bytes(plan().state[static_cast<size_t>(part.index)].dtype);
    std::memcpy(static_cast<uint8_t*>(read_state(part.index)) + part.first * item, part.data,
                static_cast<size_t>(part.count * item));
  }
}

}  // namespace dsv41c
