// Status objects, and the guard around every entry of the C interface.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "dsv41c/dsv41c.h"
#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::capi {

dsv_code code_of(const Error& error);
std::string line_of(const Error& error);  // "DSV41C-E0901 top_p of request: found 0, needed ...; pass a legal top_p"

// The exception in flight, as a status object.
dsv_status* current_exception_status() noexcept;

template <class F>
dsv_status* guard(F&& f) noexcept {
  try {
    std::forward<F>(f)();
    return nullptr;
  } catch (...) {
    return current_exception_status();
  }
}

template <class T>
T& required(T* pointer, std::string_view name) {
  if (pointer) return *pointer;
  throw Error({.code = plan_format::E0901,
               .subject = std::string(name),
               .found = "a null pointer",
               .needed = "a valid pointer",
               .action = "correct the call"});
}

dsv_code status_code(const dsv_status* status);
const char* status_message(const dsv_status* status);
const char* status_json(const dsv_status* status);
void status_free(dsv_status* status);

}  // namespace dsv41c::capi
