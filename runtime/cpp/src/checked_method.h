// A method at one number of rows under checks: every launch runs twice, in an order that only the bytes restrict.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "checked_effects.h"
#include "hazards.h"
#include "kernel_table.h"
#include "sequence.h"

namespace dsv41c {

class CheckedMethod {
 public:
  // Binds every launch once, so that a refusal comes early; `code` as in ProviderLaunch.
  CheckedMethod(const CheckedPlace& place, const KernelTable& kernels, std::string_view code);
  CheckedMethod(const CheckedMethod&) = delete;
  CheckedMethod& operator=(const CheckedMethod&) = delete;

  int64_t rows() const { return place_.rows.count; }
  // What the method writes is not defined yet: the arena, its ports, its bridges. A run that continues a split leaves
  // the rows that earlier ones have moved in the bridges.
  void forget(CheckedMemory& memory, bool continues) const {
    for (const ByteRange& range : own_) memory.forget(range);
    if (!continues)
      for (const ByteRange& range : bridges_) memory.forget(range);
  }
  // E0805 names launch and value; E0802 of a launch that fails.
  void run(CheckedMemory& memory, const CheckedRun& run) const;

 private:
  // What a provider is given.
  struct Part {
    int64_t kernel = 0;
    LaunchPlace place;
    std::vector<dsv41c_tensor> tensors;
    dsv41c_binding binding{};
  };
  struct BoundLaunch {
    LaunchPlace place;
    std::vector<Part> parts;             // one, or those of a sequence
    std::vector<CheckedInput> inputs;    // in and inout; nothing writes a weight
    std::vector<CheckedOutput> outputs;  // out and inout
    ByteRange scratch;
    std::vector<Access> accesses;
  };
  struct BoundStep {
    std::vector<BoundLaunch> launches;
    Edges edges;
  };
  using Bytes = std::vector<uint8_t>;  // of all outputs of a launch, one after another

  BoundLaunch bind(const Launch& launch, std::string_view code) const;
  void add_own();
  void add_tensor(const Argument& argument, BoundLaunch& to) const;
  void add_parts(const dsv41c_binding& binding, std::string_view code, BoundLaunch& to) const;
  void launch(const BoundLaunch& launch, std::string_view code, bool runs) const;
  void run_step(const BoundStep& step, CheckedMemory& memory, const CheckedRun& run, std::mt19937_64& draws) const;
  void run_twice(const BoundLaunch& launch, CheckedMemory& memory, const CheckedRun& run) const;
  Bytes run_once(const BoundLaunch& launch, uint8_t pattern, CheckedMemory& memory, const CheckedRun& run) const;
  void check_ports(const CheckedMemory& memory, const CheckedRun& run) const;

  const CheckedPlace place_;
  const KernelTable& kernels_;
  std::vector<BoundStep> steps_;
  std::vector<CheckedOutput> ports_;  // outputs of the method
  std::vector<ByteRange> own_;        // what forget() forgets always
  std::vector<ByteRange> bridges_;    // whole
};

}  // namespace dsv41c
