// Structs of callers that may be older or newer than the library.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "capi/status.h"

namespace dsv41c::capi {

inline constexpr size_t MAX_STRUCT_BYTES = 4096;

[[noreturn]] inline void unknown_field(const std::string& subject, const std::string& found) {
  throw Error({.code = plan_format::E1009,
               .subject = subject,
               .found = found,
               .needed = "zero, where this version knows no field or flag",
               .action = "clear the struct before it is filled, or use a newer library"});
}

inline size_t checked_size(const void* given, const std::string& name) {
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= sizeof size && size <= MAX_STRUCT_BYTES) return size;
  throw Error({.code = plan_format::E0901,
               .subject = "struct_size of " + name,
               .found = std::to_string(size),
               .needed = std::to_string(sizeof size) + " to " + std::to_string(MAX_STRUCT_BYTES) + " bytes",
               .action = "set struct_size to the size of the struct: DSV_INIT"});
}

// A copy; what the caller's struct lacks is zero. A null pointer gives zeros.
template <class T>
T read_struct(const T* given, const std::string& name) {
  T copy{};
  if (given) {
    const size_t size = checked_size(given, name);
    std::memcpy(static_cast<void*>(&copy), given, std::min(size, sizeof copy));
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof copy; i < size; ++i)
      if (bytes[i] != 0) unknown_field(name, "a value at byte " + std::to_string(i));
  }
  copy.struct_size = sizeof copy;
  return copy;
}

// Fills as much as the caller's struct holds.
template <class T>
void write_struct(T* target, const std::string& name, T values) {
  values.struct_size = checked_size(&required(target, name), name);
  std::memcpy(static_cast<void*>(target), &values, std::min(values.struct_size, sizeof values));
}

inline void check_flags(const std::string& subject, uint32_t flags, uint32_t known) {
  if (flags & ~known) unknown_field(subject, std::to_string(flags));
}

}  // namespace dsv41c::capi
