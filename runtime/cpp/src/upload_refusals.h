// How a step's inputs are refused: E0801 with the row and the field.
#pragma once

#include <optional>
#include <string>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

[[noreturn]] inline void refuse(const std::string& subject, const std::string& found, const std::string& needed,
                                const std::string& action) {
  throw Error({.code = plan_format::E0801, .subject = subject, .found = found, .needed = needed, .action = action});
}

[[noreturn]] inline void refuse_row(int64_t row, const char* field, int64_t found, const std::string& needed) {
  refuse("upload row " + std::to_string(row) + ", field " + field, std::to_string(found), needed,
         "correct the row; no state was changed");
}

inline void check_range(int64_t row, const char* field, int64_t value, int64_t low, std::optional<int64_t> end) {
  if (value >= low && (!end || value < *end)) return;
  refuse_row(row, field, value, "at least " + std::to_string(low) + (end ? " and below " + std::to_string(*end) : ""));
}

inline void check_list(const char* name, const int32_t* list, int64_t count) {
  if (count < 0) refuse(name, std::to_string(count) + " entries", "at least 0 entries", "correct the call");
  if (count > 0 && !list)
    refuse(name, "a null pointer and " + std::to_string(count) + " entries", "a valid pointer", "correct the call");
}

}  // namespace dsv41c
