// Tensors that cross the C interface: DLPack's versioned tensor, in declarations of our own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

struct DLManagedTensorVersioned;

namespace dsv41c::capi {

// A contiguous int32 vector on the CPU. E0801 names what is wrong: version, device, dtype, shape, stride, alignment.
std::span<const int32_t> int32_vector(const DLManagedTensorVersioned* tensor, const std::string& name);

// New tensors, owned by whoever calls their deleter.
DLManagedTensorVersioned* new_tensor(std::vector<float> items, std::vector<int64_t> shape);
DLManagedTensorVersioned* new_tensor(std::vector<int32_t> items, std::vector<int64_t> shape);

}  // namespace dsv41c::capi
