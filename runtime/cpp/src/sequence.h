// The kernels that a launch runs: one, or the parts of a sequence on tensors of the launch and of its scratch.
#pragma once

#include <vector>

#include "plan.h"

namespace dsv41c {

// A launch at one number of rows, and which of its parts; for messages.
struct LaunchPlace {
  static constexpr int64_t WHOLE = -1;

  const Method* method = nullptr;
  const Launch* launch = nullptr;
  int64_t rows = 0;
  int64_t part = WHOLE;

  std::string text() const;  // "method decode, launch norm, part 1, 4 rows"
};

// The locals of a sequence as tensors, and from them what each part is bound to.
class SequenceTensors {
 public:
  // `launch` is what the launch of the sequence is bound to. Throws `code` at `place` when a tensor is not as the
  // sequence needs it or a temporary lies outside the scratch.
  SequenceTensors(const Plan& plan, const Kernel& sequence, const dsv41c_binding& launch, const LaunchPlace& place,
                  std::string_view code);
  SequenceTensors(const SequenceTensors&) = delete;
  SequenceTensors& operator=(const SequenceTensors&) = delete;

  const dsv41c_tensor& local(int64_t index) const { return locals_[static_cast<size_t>(index)]; }
  // The argument of the launch that a local is or looks into; -1 for one in the scratch.
  int64_t argument(int64_t local) const { return arguments_[static_cast<size_t>(local)]; }
  dsv41c_binding part(size_t index);  // its tensors are valid until the next call

 private:
  void add(const Local& local);
  void add_argument(const Local& local);
  void add_in_bytes(const Local& local, uint8_t* base, int64_t offset, int64_t bytes);
  [[noreturn]] void refuse(std::string found, std::string needed) const;

  const Plan& plan_;
  const Kernel& kernel_;
  const dsv41c_binding launch_;
  const LaunchPlace place_;
  const std::string_view code_;
  const Symbols symbols_;
  std::vector<dsv41c_tensor> locals_;
  std::vector<int64_t> arguments_;
  std::vector<dsv41c_tensor> tensors_;  // of the last part
};

// Whether some kernel that the launch runs is one that `is_wanted(kernel)` picks.
template <class F>
bool runs_kernel(const Plan& plan, const Launch& launch, F is_wanted) {
  const Kernel& kernel = plan.kernels[static_cast<size_t>(launch.kernel)];
  if (kernel.kind != BodyKind::sequence) return is_wanted(kernel);
  for (const Part& part : kernel.parts)
    if (is_wanted(plan.kernels[static_cast<size_t>(part.kernel)])) return true;
  return false;
}

}  // namespace dsv41c
