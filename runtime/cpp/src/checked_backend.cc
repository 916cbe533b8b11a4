// Enqueues methods, and runs them when their slot of inputs or their results are needed.
#include "checked_backend.h"

#include <cstring>

#include "dsv41c/plan_generated.h"

namespace dsv41c {
namespace {

constexpr int64_t TAIL = 4096;  // behind the arena: what a launch writes past the end of all memory

Memory with_tail(Memory memory) {
  memory.total_bytes += TAIL;
  return memory;
}

}  // namespace

class CheckedBoundMethod final : public BoundMethod {
 public:
  CheckedBoundMethod(CheckedBackend& backend, std::shared_ptr<const CheckedMethod> method)
      : BoundMethod(method->rows()), backend_(backend), method_(std::move(method)) {}

  void run() const override { backend_.enqueue(method_); }

 private:
  CheckedBackend& backend_;
  std::shared_ptr<const CheckedMethod> method_;  // an eager one is enqueued longer than it is bound
};

CheckedBackend::CheckedBackend(const Artifact& artifact, const KernelTable& kernels, uint64_t seed)
    : kernels_(kernels),
      seed_(seed),
      reservation_(with_tail(artifact.plan().memory)),
      memory_(reservation_.state(), reservation_.bytes()),
      limits_(limits_of(artifact.plan(), [](const State&) { return nullptr; })),
      mirror_(artifact.plan()) {
  regions_ = {&artifact.plan(),  reservation_.state(), reservation_.bridges(),
              reservation_.io(), reservation_.arena(), {}};
  for (const StoredTensor* weight : artifact.weights()) regions_.weights.push_back(const_cast<uint8_t*>(weight->data));
  fill_state();
}

void CheckedBackend::reserve_inputs(int64_t bytes) {
  for (auto& slot : slots_) slot.resize(static_cast<size_t>(bytes));
}

std::unique_ptr<BoundMethod> CheckedBackend::bind(const Method& method, const RunRows& rows, Binding kind) {
  const auto code = kind == Binding::bucket ? plan_format::E0703 : plan_format::E0802;
  const CheckedPlace place{method, regions_, memory_, limits_, rows};
  return std::make_unique<CheckedBoundMethod>(*this, std::make_shared<CheckedMethod>(place, kernels_, code));
}

// The next slot, once what reads it has run.
void CheckedBackend::begin_step() {
  ++step_;
  current_ = 1 - current_;
  while (std::ranges::any_of(queue_, [&](const Enqueued& e) { return e.slot == current_; })) run_first();
}

void CheckedBackend::write_input(const InputPort& port, const int32_t* list, const InputRows& rows) {
  const int64_t row_bytes = port.columns() * static_cast<int64_t>(sizeof(int32_t));
  uint8_t* staged = slots_[current_].data() + port.staging + rows.staged * row_bytes;
  port.fill(reinterpret_cast<int32_t*>(staged), list, rows);
  inputs_.push_back({memory_.offset_of(port.data), staged, rows.launched * row_bytes});
  rows_ = rows.count;
  continues_ = rows.staged > 0;
}

void CheckedBackend::copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) {
  queue_.back().copies.push_back({memory_.offset_of(to), memory_.offset_of(from), bytes});
}

void CheckedBackend::enqueue(std::shared_ptr<const CheckedMethod> method) {
  const int64_t rows = rows_ < 0 ? method->rows() : rows_;
  queue_.push_back({std::move(method), std::move(inputs_), {rows, step_, seed_}, current_, continues_, {}});
  inputs_.clear();
  rows_ = -1;
  continues_ = false;
}

void CheckedBackend::synchronize() {
  while (!queue_.empty()) run_first();
}

// What follows a failure would run on undefined state.
void CheckedBackend::run_first() {
  const Enqueued first = std::move(queue_.front());
  queue_.pop_front();
  try {
    run(first);
  } catch (...) {
    queue_.clear();
    throw;
  }
}

void CheckedBackend::run(const Enqueued& enqueued) {
  struct Published {  // the host reads state and outputs on the stage, also after a failure
    CheckedMemory& memory;
    ~Published() { memory.publish({0, memory.bytes()}); }
  };
  take_state();
  const Published published{memory_};
  enqueued.method->forget(memory_, enqueued.continues);
  for (const StagedInput& input : enqueued.inputs) memory_.write(input.to, input.from, input.bytes);
  enqueued.method->run(memory_, enqueued.run);
  for (const Copy& copy : enqueued.copies) memory_.copy(copy.to, copy.from, copy.bytes);
}

// The host may have changed it. What pad rows store is never defined, unless it is followed as an index.
void CheckedBackend::take_state() {
  for (const State& state : plan().state) {
    const int64_t begin = memory_.offset_of(regions_.state + state.offset), bytes = state_bytes(state);
    memory_.take({begin, begin + bytes});
    if (has_trash(state, limits_) && !holds_indices(state.dtype))
      memory_.forget({begin + bytes - bytes / state.sizes[0], begin + bytes});
  }
}

void CheckedBackend::fill_state() {
  synchronize();
  dsv41c::fill_state(plan(), reservation_.state());
  mirror_.fill();
}

void* CheckedBackend::read_output(const std::string&, const dsv41c_tensor& tensor) {
  synchronize();
  return tensor.data;
}

void* CheckedBackend::read_state(int64_t index) {
  synchronize();
  return regions_.state + plan().state[static_cast<size_t>(index)].offset;
}

void CheckedBackend::write_state(int64_t index, const void* data) {
  const State& state = plan().state[static_cast<size_t>(index)];
  std::memcpy(read_state(index), data, static_cast<size_t>(state_bytes(state)));
  mirror_.write(state.name, data);
}

void CheckedBackend::write_state_parts(std::span<const StatePart> parts) {
  for (const StatePart& part : parts) {
    const State& state = plan().state[static_cast<size_t>(part.index)];
    const int64_t item = item_bytes(state.dtype);
    std::memcpy(static_cast<uint8_t*>(read_state(part.index)) + part.first * item, part.data,
                static_cast<size_t>(part.count * item));
    mirror_.write_part(state.name, part.first, part.count, part.data);
  }
}

}  // namespace dsv41c
