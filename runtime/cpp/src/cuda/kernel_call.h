// One start of a kernel with everything fixed: function, launch shape, parameters, and the bytes that it touches.
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
  KernelNodeParams shape{};      // without the pointers to the parameters
  std::vector<uint64_t> values;  // parameter i in the low bytes of values[i]
  std::vector<Access> accesses;  // weights left out: nothing writes them
  const Launch* launch = nullptr;

  // Shape with pointers into `pointers`, which point into values.
  KernelNodeParams parameters(std::vector<void*>& pointers);
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
