// One node with everything fixed: a kernel with its launch shape and parameters, a copy or a memset, and the bytes
// that it touches.
#pragma once

#include <string>
#include <vector>

#include "cuda/function_table.h"
#include "regions.h"

namespace dsv41c::cuda {

// Device bytes [begin, end) that a call reads or writes.
struct Access {
  Address begin = 0;
  Address end = 0;
  bool is_read = false;
  bool is_written = false;
};

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
  const Launch* launch = nullptr;

  // Shape with pointers into `pointers`, which point into values and maps.
  KernelNodeParams parameters(std::vector<void*>& pointers);
  CopyParams copy_params() const;
  MemsetParams memset_params() const;
};

// Address and bytes of every value of a method at one number of rows.
class ValueTable {
 public:
  ValueTable(const Method& method, int64_t rows, const Regions& regions);

  struct Entry {
    Address address = 0;
    int64_t bytes = 0;
    bool is_weight = false;
  };
  const Entry& operator[](int64_t value) const { return entries_[static_cast<size_t>(value)]; }

 private:
  std::vector<Entry> entries_;
};

// The calls of one launch of a plan, in order.
void append_calls(const Kernel& kernel, const Launch& launch, int64_t rows, const ValueTable& values,
                  const FunctionTable& functions, std::vector<KernelCall>& calls);

}  // namespace dsv41c::cuda
