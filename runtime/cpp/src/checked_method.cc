// Binds a method for checks: its launches' bytes, and what orders them.
#include "checked_method.h"

#include <algorithm>

#include "provider_launch.h"

namespace dsv41c {
namespace {

Access access_of(ByteRange range, bool is_written) {
  return {static_cast<uint64_t>(range.begin), static_cast<uint64_t>(range.end), !is_written, is_written};
}

}  // namespace

CheckedMethod::CheckedMethod(const CheckedPlace& place, const KernelTable& kernels, std::string_view code)
    : place_(place), kernels_(kernels) {
  for (const Step& step : place_.method.steps) {
    BoundStep bound;
    for (const Launch& each : step.launches) {
      bound.launches.push_back(bind(each, code));
      launch(bound.launches.back(), code, false);
    }
    std::vector<std::span<const Access>> accesses;
    for (const BoundLaunch& each : bound.launches) accesses.emplace_back(each.accesses);
    bound.edges = find_edges(accesses);
    steps_.push_back(std::move(bound));
  }
  for (const Port& port : place_.method.outputs) ports_.emplace_back(place_, Argument{ArgumentKind::out, port.value});
  add_own();
}

CheckedMethod::BoundLaunch CheckedMethod::bind(const Launch& launch, std::string_view code) const {
  BoundLaunch bound;
  bound.place = {&place_.method, &launch, rows()};
  for (const Argument& argument : launch.tensors)
    if (argument.kind != ArgumentKind::none) add_tensor(argument, bound);
  const LaunchTensors tensors(place_.method, launch, place_.rows, place_.regions);
  if (tensors.binding.scratch) {
    const int64_t begin = place_.memory.offset_of(tensors.binding.scratch);
    bound.scratch = {begin, begin + tensors.binding.scratch_bytes};  // orders nothing: no launch finds another's there
  }
  add_parts(tensors.binding, code, bound);
  return bound;
}

void CheckedMethod::add_tensor(const Argument& argument, BoundLaunch& to) const {
  if (place_.root(argument.value).storage.kind == StorageKind::weight) return;
  const CheckedInput tensor(place_, argument.value);
  const bool is_written = argument.kind != ArgumentKind::in;
  for (const ByteRange& range : tensor.ranges()) to.accesses.push_back(access_of(range, is_written));
  if (argument.kind != ArgumentKind::out) to.inputs.push_back(tensor);
  if (is_written) to.outputs.emplace_back(place_, argument);
}

void CheckedMethod::add_parts(const dsv41c_binding& binding, std::string_view code, BoundLaunch& to) const {
  const auto add = [&](int64_t kernel, const LaunchPlace& place, const dsv41c_binding& given) {
    to.parts.push_back({kernel, place, {given.tensors, given.tensors + given.num_tensors}, given});
  };
  const Plan& plan = *place_.regions.plan;
  const Kernel& kernel = plan.kernels[static_cast<size_t>(to.place.launch->kernel)];
  if (kernel.kind != BodyKind::sequence) return add(to.place.launch->kernel, to.place, binding);
  SequenceTensors tensors(plan, kernel, binding, to.place, code);
  for (size_t i = 0; i < kernel.parts.size(); ++i) {
    LaunchPlace place = to.place;
    place.part = static_cast<int64_t>(i);
    add(kernel.parts[i].kernel, place, tensors.part(i));
  }
}

// Bound anew each time: nothing is left of an earlier launch, and a provider verifies its outputs on every first one.
void CheckedMethod::launch(const BoundLaunch& launch, std::string_view code, bool runs) const {
  for (const Part& part : launch.parts) {
    dsv41c_binding binding = part.binding;
    binding.tensors = part.tensors.data();
    const std::string& op = place_.regions.plan->kernels[static_cast<size_t>(part.kernel)].op;
    const ProviderLaunch bound(kernels_[part.kernel], op, binding, part.place, code);
    ProviderMessage message;
    if (runs) bound.run(message);
  }
}

void CheckedMethod::add_own() {
  const CheckedMemory& memory = place_.memory;
  own_.push_back({memory.offset_of(place_.regions.arena), memory.bytes()});
  const auto add = [&](const dsv41c_tensor& tensor, std::vector<ByteRange>& to) {
    const int64_t begin = memory.offset_of(tensor.data);
    to.push_back({begin, begin + span_bytes(tensor)});
  };
  for (size_t i = 0; i < place_.method.values.size(); ++i)
    if (place_.method.values[i].storage.kind == StorageKind::io) add(place_.tensor(static_cast<int64_t>(i)), own_);
  for (const BoundStep& step : steps_)
    for (const BoundLaunch& launch : step.launches)
      for (const CheckedOutput& output : launch.outputs)
        if (output.root().kind == StorageKind::bridge) {
          const Bridge& bridge = place_.regions.plan->bridges[static_cast<size_t>(output.root().index)];
          add(contiguous_tensor(place_.regions.bridges + bridge.offset, bridge.dtype, bridge.sizes), bridges_);
        }
}

}  // namespace dsv41c
