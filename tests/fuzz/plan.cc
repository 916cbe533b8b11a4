// Parses and verifies a plan: a typed refusal, or nothing.
#include "plan.h"

#include <string_view>

#include "error.h"
#include "verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    dsv41c::verify_plan(dsv41c::parse_plan({reinterpret_cast<const char*>(data), size}));
  } catch (const dsv41c::Error& refusal) {
    if (refusal.json().empty()) __builtin_trap();
  }
  return 0;
}
