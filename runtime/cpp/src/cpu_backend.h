// The CPU: one mmap for the plan's memory, weights where the files are mapped, launches run in the calling thread.
#pragma once

#include "backend.h"
#include "reservation.h"

namespace dsv41c {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Artifact& artifact, const KernelTable& kernels);  // E0701

  int64_t planned_bytes() const override { return plan().memory.total_bytes; }
  int64_t reserved_bytes() const override { return reservation_.bytes(); }
  void reserve_inputs(int64_t) override {}
  std::unique_ptr<BoundMethod> bind(const Method& method, const RunRows& rows, Binding kind) override;
  int64_t warm_up_rows(const Method&, int64_t smallest, int64_t) const override { return smallest; }
  void poison(int32_t byte) override;
  void write_input(const InputPort& port, const int32_t* list, const InputRows& rows) override;
  void copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  void fill_state() override;
  const int32_t* host_state(const State& state) override;
  void* read_output(const std::string&, const dsv41c_tensor& tensor) override { return tensor.data; }
  void* read_state(int64_t index) override;
  void write_state(int64_t index, const void* data) override;
  void write_state_parts(std::span<const StatePart> parts) override;

 private:
  const Plan& plan() const { return *regions_.plan; }

  const KernelTable& kernels_;
  Reservation reservation_;
};

}  // namespace dsv41c
