// Providers for a host built with AddressSanitizer, where a kernel may touch the tensors of its launch and no others.
#pragma once

#include "dsv41c/provider.h"

namespace guarded {

// The native kernels of `real` behind the guard.
const dsv41c_provider* native_provider(const dsv41c_provider* real);
// Stands for ATen: reads its tensors and scratch from end to end, and fills the outputs that the composite's calls
// name with numbers that no index of a sound model has.
const dsv41c_provider* stub_aten_provider();

}  // namespace guarded
