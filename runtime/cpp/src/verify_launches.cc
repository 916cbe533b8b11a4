// Rules of one launch: indices, what it may write, its scratch, and that what it writes shares no byte.
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

class LaunchRules {
 public:
  LaunchRules(const Method& method, const Symbol& symbol, const std::vector<int64_t>& points,
              const std::vector<Placed>& placed, const Launch& launch, const Where& where)
      : method_(method), symbol_(symbol), points_(points), placed_(placed), launch_(launch), where_(where) {}

  void check_scratch(const KernelFacts& facts) const {
    if (launch_.scratch) {
      check_index(*launch_.scratch, method_.values.size(), "scratch", where_);
      if (method_.values[*launch_.scratch].storage.kind != StorageKind::arena)
        broken("scratch outside the arena", where_, place(*launch_.scratch), "a value with arena storage");
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      const int64_t needed = facts.scratch_bytes.at(points_[i]);
      const int64_t size = launch_.scratch ? placed_[*launch_.scratch].ranges[i].size() : 0;
      if (size < needed)
        broken("scratch is too small", where_, std::to_string(size) + " bytes" + at_rows(i),
               std::to_string(needed) + " bytes");
    }
  }

  void check_written() const {
    for (const Argument& argument : launch_.tensors) {
      if (!writes(argument)) continue;
      const StorageKind kind = placed_[argument.value].storage->kind;
      if (kind == StorageKind::weight) broken("weight is written", where_, place(argument.value), "weights only as in");
      if (kind == StorageKind::state && argument.kind == ArgumentKind::out)
        broken("state is written as out", where_, place(argument.value), "state as in or inout");
    }
  }

  // Torch and the native kernels both rely on it and check nothing.
  void check_overlaps() const {
    std::vector<std::pair<int64_t, bool>> values;
    for (const Argument& argument : launch_.tensors)
      if (argument.kind != ArgumentKind::none) values.emplace_back(argument.value, writes(argument));
    if (launch_.scratch) values.emplace_back(*launch_.scratch, true);
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t j = i + 1; j < values.size(); ++j)
        if (values[i].second || values[j].second) check_apart(values[i].first, values[j].first);
  }

  Operand operand(int64_t value) const { return {method_.values[value].dtype, placed_[value].ranges}; }

 private:
  void check_apart(int64_t left, int64_t right) const {
    for (size_t point = points_.size(); point-- > 0;) {
      const Range &first = placed_[left].ranges[point], &second = placed_[right].ranges[point];
      if (first.overlaps(second))
        broken("written tensor overlaps another", where_, place(left) + " at " + first.text(),
               "no byte of " + place(right) + " at " + second.text());
    }
  }

  std::string at_rows(size_t point) const { return " at " + symbol_.name + " = " + std::to_string(points_[point]); }
  std::string place(int64_t value) const { return value_place(method_, value); }

  const Method& method_;
  const Symbol& symbol_;
  const std::vector<int64_t>& points_;
  const std::vector<Placed>& placed_;
  const Launch& launch_;
  const Where& where_;
};

}  // namespace

void check_launches(const Plan& plan, const Method& method, const Symbol& symbol, const std::vector<Placed>& placed,
                    const std::vector<KernelFacts>& kernels) {
  const std::vector<int64_t> points = points_of(method, symbol);
  for_each_launch(method, [&](int64_t index, const Launch& launch) {
    const auto text = [&] { return launch_place(method, index, launch); };
    const Where where(text);
    check_index(launch.kernel, plan.kernels.size(), "kernel", where);
    for (const Argument& argument : launch.tensors)
      if (argument.kind != ArgumentKind::none) check_index(argument.value, method.values.size(), "value", where);
    const LaunchRules rules(method, symbol, points, placed, launch, where);
    rules.check_scratch(kernels[launch.kernel]);
    rules.check_written();
    rules.check_overlaps();
    const Kernel& kernel = plan.kernels[launch.kernel];
    const auto operand = [&](int64_t value) { return rules.operand(value); };
    check_arguments(launch.tensors, kernels[launch.kernel], points, symbol.name, operand, where);
    if (kernel.kind == BodyKind::cuda)
      check_cuda_arguments(kernel, launch.tensors, points, symbol.name, operand, where);
  });
}

}  // namespace dsv41c::verifier
