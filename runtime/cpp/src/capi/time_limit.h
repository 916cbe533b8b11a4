// Time limits of calls that wait.
#pragma once

#include <chrono>
#include <string>

#include "capi/status.h"

namespace dsv41c::capi {

// At most ten years, so that a clock can add them.
inline std::chrono::milliseconds milliseconds(uint64_t count) {
  constexpr uint64_t MOST = 10ull * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(count < MOST ? count : MOST);
}

inline Error time_limit(const char* call, uint64_t timeout_ms, const char* awaited) {
  return Error({.code = plan_format::E1004,
                .subject = call,
                .found = std::to_string(timeout_ms) + " ms passed",
                .needed = awaited,
                .action = "allow more time"});
}

}  // namespace dsv41c::capi
