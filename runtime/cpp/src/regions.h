// Where the storage kinds of a plan live, on whatever device: addresses and tensors of a method's values.
#pragma once

#include <vector>

#include "plan.h"

namespace dsv41c {

// Rows of one run of a method: so many, and how many rows of the step earlier runs have taken.
struct RunRows {
  int64_t count = 0;
  int64_t first = 0;
};

struct Regions {
  const Plan* plan = nullptr;
  uint8_t* state = nullptr;
  uint8_t* bridges = nullptr;
  uint8_t* io = nullptr;
  uint8_t* arena = nullptr;
  std::vector<uint8_t*> weights;  // by plan weight index

  // A bridge of a flow holds the rows of a whole step: the run's begin at `first`.
  dsv41c_tensor tensor(const Method& method, int64_t value, const RunRows& rows) const;

 private:
  uint8_t* address(const Method& method, const Value& value, const Symbols& symbols, int64_t first) const;
};

// A plan's state, weight or bridge as a contiguous tensor at `data`.
dsv41c_tensor contiguous_tensor(void* data, int32_t dtype, const std::vector<int64_t>& sizes);
// Bytes from the first element to the end of the last one.
int64_t span_bytes(const dsv41c_tensor& tensor);

// The tensors of one launch at one number of rows, as a provider's bind takes them.
class LaunchTensors {
 public:
  LaunchTensors(const Method& method, const Launch& launch, const RunRows& rows, const Regions& regions);
  LaunchTensors(const LaunchTensors&) = delete;
  LaunchTensors& operator=(const LaunchTensors&) = delete;

  dsv41c_binding binding{};  // of the CPU; a backend of another device sets device and stream

 private:
  std::vector<dsv41c_tensor> tensors_;
};

}  // namespace dsv41c
