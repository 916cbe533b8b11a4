// The structs of callers as what the engine takes; every field that is unknown, reserved or out of form is refused.
#pragma once

#include "capi/status.h"
#include "engine/engine.h"

namespace dsv41c::capi {

// A number that no limit reaches is refused as any other that is too large.
inline int64_t bounded(uint64_t value) { return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value); }

dsv_open_options read_open_options(const dsv_open_options* given);
dsv_engine_options read_engine_options(const dsv_engine_options* given);
EngineOptions engine_options(const dsv_engine_options& given);
GenerateParams read_generate_params(const dsv_generate_params* given);

}  // namespace dsv41c::capi
