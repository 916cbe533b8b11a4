// The ATen provider for a process without Python.
#pragma once

#include "dsv41c/provider.h"
#include "plan.h"

namespace dsv41c::capi {

// Of libdsv41c_aten.so beside this library, which links torch's; null for a plan that needs no ATen. E0702 when it
// cannot be opened. It is opened once and stays.
const dsv41c_provider* aten_provider(const Plan& plan);

}  // namespace dsv41c::capi
