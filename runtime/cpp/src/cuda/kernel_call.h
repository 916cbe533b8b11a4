// One node with everything fixed: a kernel with its launch shape and parameters, a copy or a memset, and the bytes
// that it touches.
#pragma once

#include <string>
#include <vector>

#include "cuda/function_table.h"
#include "hazards.h"
#include "regions.h"
#include "sequence.h"

namespace dsv41c::cuda {

struct KernelCall {
  NodeKind kind = NodeKind::kernel;
  KernelNodeParams shape{};      // kernel: without the pointers to the parameters
  std::vector<uint64_t> values;  // kernel: parameter i in the low bytes of values[i], unless it is a tensor map
  std::vector<TensorMap> maps;   // kernel: those of parameters map_parameters, in order
  std::vector<size_t> map_parameters;
  Address target = 0, source = 0;  // copy, memset (target only)
  int64_t bytes = 0;               // copy, memset
  uint8_t value = 0;               // memset
  std::vector<Access> accesses;    // weights left out: nothing writes them
  LaunchPlace place;

  // Shape with pointers into `pointers`, which point into values and maps.
  KernelNodeParams parameters(std::vector<void*>& pointers);
  CopyParams copy_params() const;
  MemsetParams memset_params() const;
};

// Where a tensor lies on the device.
struct Extent {
  Address address = 0;
  int64_t bytes = 0;
  bool is_weight = false;
};

// Address and bytes of every value of a method in one run of so many rows.
class ValueTable {
 public:
  ValueTable(const Method& method, const RunRows& rows, const Regions& regions);
  const Extent& operator[](int64_t value) const { return entries_[static_cast<size_t>(value)]; }

 private:
  std::vector<Extent> entries_;
};

// What one kernel is given: its tensors in order, each with its use, and its scratch.
struct Operands {
  struct Operand {
    ArgumentKind kind = ArgumentKind::none;
    Extent extent;
  };
  std::vector<Operand> tensors;
  Extent scratch;  // address 0 without one
};

Operands operands_of(const Launch& launch, const ValueTable& values);
// Of part `part` of a launch of a sequence.
Operands operands_of(const Launch& launch, const Part& part, const dsv41c_binding& binding,
                     const SequenceTensors& tensors, const ValueTable& values);

// The calls of one kernel at `place`, in order.
void append_calls(const Kernel& kernel, const Operands& operands, const LaunchPlace& place,
                  const FunctionTable& functions, std::vector<KernelCall>& calls);

}  // namespace dsv41c::cuda
