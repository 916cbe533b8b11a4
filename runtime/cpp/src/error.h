// The typed error of the C++ side: the same fields and codes as dsv41c.runtime.plan.errors.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dsv41c/provider.h"

namespace dsv41c {

struct ErrorFields {
  std::string_view code;  // one of plan_format::E0xxx
  std::string subject;
  std::optional<std::string> where = {};
  std::string found;
  std::string needed;
  std::string action;  // "do" in the JSON
};

// Throw as: throw Error({.code = plan_format::E0502, .subject = "...", .found = ..., .needed = ..., .action = ...}).
class Error : public std::exception {
 public:
  explicit Error(ErrorFields fields);  // an unknown code throws std::logic_error
  const ErrorFields& fields() const { return fields_; }
  int exit_code() const { return exit_code_; }
  // {"code","do","found","needed","subject","where"}; where is null when absent. Bytes that are not UTF-8 are replaced.
  std::string json() const;
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ErrorFields fields_;
  int exit_code_;
  std::string text_;  // json()
};

// Copies text into the caller's buffer, cut to its capacity and zero-terminated; error may be null.
void write_error(dsv41c_error* error, std::string_view text) noexcept;
// Reports the exception in flight: an Error as its JSON, anything else as an E0802 that carries what(). The text is a
// valid document at any capacity (fields are cut to fit), or empty where not even the empty fields fit.
void write_current_exception(dsv41c_error* error) noexcept;

// Runs f; 0, or 1 with the error written. Every extern "C" entry goes through it: nothing may throw across C.
template <class F>
int32_t guard(dsv41c_error* error, F&& f) noexcept {
  try {
    std::forward<F>(f)();
    return 0;
  } catch (...) {
    write_current_exception(error);
    return 1;
  }
}

}  // namespace dsv41c
