// The CPU under checks. It has the shape of a GPU: a step is enqueued, its inputs wait in one of two slots, and it
// runs when something needs it.
#pragma once

#include <deque>

#include "backend.h"
#include "checked_method.h"
#include "reservation.h"
#include "state_mirror.h"

namespace dsv41c {

class CheckedBackend final : public Backend {
 public:
  CheckedBackend(const Artifact& artifact, const KernelTable& kernels, uint64_t seed);  // E0701

  void synchronize() override;

  int64_t planned_bytes() const override { return plan().memory.total_bytes; }
  int64_t reserved_bytes() const override { return reservation_.bytes(); }
  void reserve_inputs(int64_t bytes) override;
  std::unique_ptr<BoundMethod> bind(const Method& method, const RunRows& rows, Binding kind) override;
  int64_t warm_up_rows(const Method&, int64_t smallest, int64_t) const override { return smallest; }
  void begin_step() override;
  void poison(int32_t) override {}  // the checks fill more, and twice
  void write_input(const InputPort& port, const int32_t* list, const InputRows& rows) override;
  void copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  void step_enqueued(const dsv41c_step_inputs& inputs, const Limits& limits) override { mirror_.apply(inputs, limits); }
  std::span<uint8_t> staged_inputs() override { return slots_[current_]; }

  void fill_state() override;
  const int32_t* host_state(const State& state) override { return mirror_.find(state.name); }
  void* read_output(const std::string&, const dsv41c_tensor& tensor) override;
  void* read_state(int64_t index) override;
  void write_state(int64_t index, const void* data) override;
  void write_state_parts(std::span<const StatePart> parts) override;

 private:
  friend class CheckedBoundMethod;

  struct StagedInput {
    int64_t to;           // in the memory
    const uint8_t* from;  // in a slot
    int64_t bytes;
  };
  struct Copy {
    int64_t to, from, bytes;
  };
  struct Enqueued {
    std::shared_ptr<const CheckedMethod> method;
    std::vector<StagedInput> inputs;
    CheckedRun run;
    size_t slot = 0;
    bool continues = false;    // a later part of a split
    std::vector<Copy> copies;  // behind the run
  };

  const Plan& plan() const { return *regions_.plan; }
  void enqueue(std::shared_ptr<const CheckedMethod> method);
  void run_first();  // of the queue
  void run(const Enqueued& enqueued);
  void take_state();

  const KernelTable& kernels_;
  const uint64_t seed_;
  Reservation reservation_;
  CheckedMemory memory_;
  Limits limits_;
  StateMirror mirror_;
  std::vector<uint8_t> slots_[2];
  size_t current_ = 0;
  int64_t step_ = 0;
  std::vector<StagedInput> inputs_;  // of the method that is enqueued next
  int64_t rows_ = -1;                // its real ones, -1: none were written
  bool continues_ = false;
  std::deque<Enqueued> queue_;
};

}  // namespace dsv41c
