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

  // A composite finds the tensors that its body uses, large enough, and writable where it writes.
  void check_body_arguments(const KernelFacts& facts) const {
    for (const auto& [index, dtype] : facts.arguments) {
      check_index(index, launch_.tensors.size(), "argument", where_);
      const Argument& argument = launch_.tensors[index];
      const std::string found = "argument " + std::to_string(index);
      if (argument.kind == ArgumentKind::none) broken("body uses an absent argument", where_, found, "a tensor");
      if (const int32_t given = method_.values[argument.value].dtype; given != dtype)
        broken("argument of the wrong dtype", where_, found + " " + std::string(dtype_name(given)),
               std::string(dtype_name(dtype)));
      check_span(facts, index, placed_[argument.value]);
      const bool written = facts.written.contains(index);
      if (written && !writes(argument)) broken("body writes an input", where_, found, "out or inout");
      if (argument.kind == ArgumentKind::out && (!written || facts.read_first.contains(index))) not_written(index);
    }
    for (size_t i = 0; i < launch_.tensors.size(); ++i)
      if (launch_.tensors[i].kind == ArgumentKind::out && !facts.arguments.contains(static_cast<int64_t>(i)))
        not_written(static_cast<int64_t>(i));
  }

 private:
  void check_apart(int64_t left, int64_t right) const {
    for (size_t point = points_.size(); point-- > 0;) {
      const Range &first = placed_[left].ranges[point], &second = placed_[right].ranges[point];
      if (first.overlaps(second))
        broken("written tensor overlaps another", where_, place(left) + " at " + first.text(),
               "no byte of " + place(right) + " at " + second.text());
    }
  }

  void check_span(const KernelFacts& facts, int64_t index, const Placed& value) const {
    for (size_t i = 0; i < points_.size(); ++i) {
      const int64_t needed = facts.span_bytes.at({points_[i], index}), size = value.ranges[i].size();
      if (needed > size)
        broken("argument is too small", where_,
               "argument " + std::to_string(index) + ", " + std::to_string(size) + " bytes",
               std::to_string(needed) + " bytes" + at_rows(i));
    }
  }

  [[noreturn]] void not_written(int64_t index) const {
    broken("out is not written first", where_, "argument " + std::to_string(index),
           "a body that writes it before reading");
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
    if (kernel.kind == BodyKind::composite) rules.check_body_arguments(kernels[launch.kernel]);
    if (kernel.kind == BodyKind::cuda) check_cuda_launch(kernel, method, symbol, launch, placed, where);
  });
}

}  // namespace dsv41c::verifier
