// What the host knows of slot positions, tokens and pages while the device is still working: an upload is checked
// against it without waiting.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dsv41c/executor.h"
#include "plan.h"
#include "step_limits.h"

namespace dsv41c {

class StateMirror {
 public:
  explicit StateMirror(const Plan& plan);

  void fill();  // as the state starts
  const int32_t* find(const std::string& name) const;
  void write(const std::string& name, const void* data);
  void write_part(const std::string& name, int64_t first, int64_t count, const void* data);  // in elements
  // What the step does to the three tensors. Which token a slot holds stays on the device: the mirror says 0, a token.
  void apply(const dsv41c_step_inputs& inputs, const Limits& limits);

 private:
  struct Entry {
    std::vector<int32_t> values;
    int32_t fill;
  };
  int32_t* values(const char* name);

  std::map<std::string, Entry> entries_;
};

}  // namespace dsv41c
