// What every entry point of the fake driver does: count and name the call, check handles, read parameters.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "fake_cuda.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

inline void violation(const std::string& text) { world().violations.push_back(text); }

// Counts and names a call; the result it must return at once, unless OK.
inline Result begin(const char* name, bool needs_context = true) {
  World& w = world();
  w.log.push_back(name);
  if (++w.calls == w.fail_at) return w.fail_with;
  if (needs_context && w.contexts.empty()) {
    violation(std::string(name) + " without a current context");
    return INVALID_CONTEXT;
  }
  return OK;
}

template <class T>
T* make(const char* kind, T* object) {
  world().live[object] = kind;
  return object;
}

inline bool is_live(const void* handle, const char* kind, const char* name) {
  const auto found = world().live.find(handle);
  if (found != world().live.end() && found->second == kind) return true;
  violation(std::string(name) + " with a handle that is no live " + kind);
  return false;
}

// A release does its work even when it reports a failure, as a real one does for failures of earlier work.
template <class T>
Result release(const char* name, const char* kind, T* object, bool needs_idle) {
  const Result result = begin(name);
  if (!is_live(object, kind, name)) return INVALID_HANDLE;
  if (needs_idle && !world().is_idle()) violation(std::string(name) + " while work is pending");
  world().live.erase(object);
  delete object;
  return result;
}

inline std::vector<uint64_t> read_values(const Kernel& kernel, void** parameters) {
  std::vector<uint64_t> values;
  for (size_t i = 0; i < kernel.letters.size(); ++i) {
    const bool is_wide = kernel.letters[i] == 'p' || kernel.letters[i] == 'l';
    uint64_t value = 0;
    if (kernel.letters[i] == 'm') {
      uint64_t map[16];
      std::memcpy(map, parameters[i], sizeof map);
      if (map[0] != MAP_MAGIC) violation("a parameter that is no tensor map");
      value = map[0] == MAP_MAGIC ? map[1] : 0;
    } else {
      std::memcpy(&value, parameters[i], is_wide ? 8 : 4);
    }
    values.push_back(value);
  }
  return values;
}

inline bool shape_fits(const Node& node) {
  return node.shared <= node.kernel->shared_limit && node.grid[0] * node.grid[1] * node.grid[2] > 0 &&
         node.block[0] * node.block[1] * node.block[2] <= 1024;
}

inline Stream* as_stream(void* handle) { return static_cast<Stream*>(handle); }

}  // namespace fake
