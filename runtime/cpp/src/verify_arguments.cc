// Rules of the tensors that a kernel is given, by a launch or by a sequence: those its body uses, as it uses them.
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

[[noreturn]] void not_written(int64_t index, const Where& where) {
  broken("out is not written first", where, "argument " + std::to_string(index),
         "a body that writes it before reading");
}

// A tensor map in a part looks into the argument.
void check_alignment(int64_t index, const Operand& given, const KernelFacts& facts, const Where& where) {
  const auto unit = facts.alignments.find(index);
  if (unit == facts.alignments.end()) return;
  for (const Range& range : given.ranges)
    if (range.begin % unit->second != 0)
      broken("tensor map is not aligned", where,
             "argument " + std::to_string(index) + " at byte " + std::to_string(range.begin),
             "a multiple of " + std::to_string(unit->second));
}

}  // namespace

void check_arguments(const std::vector<Argument>& tensors, const KernelFacts& facts, const std::vector<int64_t>& points,
                     const std::string& symbol, const std::function<Operand(int64_t)>& operand, const Where& where) {
  if (!facts.has_locals) return;
  for (const auto& [index, dtype] : facts.arguments) {
    check_index(index, tensors.size(), "argument", where);
    const Argument& argument = tensors[index];
    const std::string found = "argument " + std::to_string(index);
    if (argument.kind == ArgumentKind::none) broken("body uses an absent argument", where, found, "a tensor");
    const Operand given = operand(argument.value);
    if (given.dtype != dtype)
      broken("argument of the wrong dtype", where, found + " " + std::string(dtype_name(given.dtype)),
             std::string(dtype_name(dtype)));
    for (size_t i = 0; i < points.size(); ++i)
      if (const int64_t needed = facts.span_bytes.at({points[i], index}), size = given.ranges[i].size(); needed > size)
        broken("argument is too small", where, found + ", " + std::to_string(size) + " bytes",
               std::to_string(needed) + " bytes at " + symbol + " = " + std::to_string(points[i]));
    check_alignment(index, given, facts, where);
    const bool written = facts.written.contains(index);
    if (written && !writes(argument)) broken("body writes an input", where, found, "out or inout");
    if (argument.kind == ArgumentKind::out && (!written || facts.read_first.contains(index))) not_written(index, where);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].kind == ArgumentKind::out && !facts.arguments.contains(static_cast<int64_t>(i)))
      not_written(static_cast<int64_t>(i), where);
}

}  // namespace dsv41c::verifier
