#include "verify_geometry.h"

#include <algorithm>

#include "error.h"

namespace dsv41c::verifier {

namespace {

constexpr int64_t MAX_BYTES = plan_format::MAX_BYTES;

const std::string& first_unknown(const std::set<std::string>& used, const Symbols& symbols) {
  static const std::string none;
  const auto found = std::ranges::find_if(used, [&](const auto& name) { return !symbols.contains(name); });
  return found == used.end() ? none : *found;
}

// The span in bytes, or more than MAX_BYTES as soon as a step leaves int64. Sizes are at least 1, strides at least 0.
int64_t span_of(const Shape& shape, int64_t item) {
  int64_t last = 1;
  for (size_t i = 0; i < shape.sizes.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(shape.sizes[i] - 1, shape.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last))
      return MAX_BYTES + 1;
  }
  int64_t bytes = 0;
  return __builtin_mul_overflow(last, item, &bytes) ? MAX_BYTES + 1 : bytes;
}

}  // namespace

void broken(std::string subject, const std::string& where, std::string found, std::string needed) {
  throw Error({.code = plan_format::E0502,
               .subject = std::move(subject),
               .where = where,
               .found = std::move(found),
               .needed = std::move(needed),
               .action = "rebuild the plan; it was changed or its compiler is wrong"});
}

std::string Range::text() const {
  static constexpr const char* names[] = {"arena",   "io",        "state",   "bridge",
                                          "weight ", "argument ", "scratch", "constant"};
  const bool numbered = region == Region::weight || region == Region::argument;
  return names[static_cast<size_t>(region)] + (numbered ? std::to_string(number) : "") + " bytes " +
         std::to_string(begin) + " to " + std::to_string(end);
}

bool Shape::is_contiguous() const {
  int64_t stride = 1;
  bool fits = true;  // false once the product left int64: no stride equals it
  for (size_t i = sizes.size(); i-- > 0;) {
    if (!fits || strides[i] != stride) return false;
    fits = !__builtin_mul_overflow(stride, sizes[i], &stride);
  }
  return true;
}

int64_t evaluate_at(const Expr& expr, const Symbols& symbols, const Where& where) {
  if (expr.kind == Expr::Kind::constant) return expr.value;
  std::set<std::string> used;
  collect_symbols(expr, used);
  if (const std::string& unknown = first_unknown(used, symbols); !unknown.empty()) {
    std::string known;
    for (const auto& [name, value] : symbols) known += " " + name;
    broken("unknown symbol", where, "symbol " + unknown, "symbol" + (known.empty() ? " " : known));
  }
  try {
    return evaluate(expr, symbols);
  } catch (const Error& error) {
    ErrorFields fields = error.fields();
    fields.where = where.text();
    throw Error(std::move(fields));
  }
}

int64_t evaluate_extent(const Expr& expr, const Symbols& symbols, const Where& where) {
  if (expr.kind == Expr::Kind::constant) return expr.value;
  const int64_t value = evaluate_at(expr, symbols, where);
  if (!never_falls(expr))
    broken("expression may fall as the symbol grows", where, to_text(expr),
           "no symbol after - or as a divisor, no negative factor of one");
  return value;
}

Shape shape_at(const std::vector<Expr>& sizes, const std::vector<Expr>& strides, int32_t dtype, const Symbols& symbols,
               const Where& where) {
  if (sizes.size() != strides.size())
    broken("sizes and strides differ in length", where,
           std::to_string(sizes.size()) + " and " + std::to_string(strides.size()), "equal lengths");
  Shape shape;
  for (const Expr& size : sizes) shape.sizes.push_back(evaluate_extent(size, symbols, where));
  for (const Expr& stride : strides) shape.strides.push_back(evaluate_extent(stride, symbols, where));
  if (std::ranges::any_of(shape.sizes, [](int64_t n) { return n < 1; }))
    broken("size below 1", where, numbers(shape.sizes), "sizes of at least 1");
  if (std::ranges::any_of(shape.strides, [](int64_t n) { return n < 0; }))
    broken("negative stride", where, numbers(shape.strides), "strides of at least 0");
  shape.span_bytes = span_of(shape, item_bytes(dtype));
  if (shape.span_bytes > MAX_BYTES)
    broken("tensor is too large", where, numbers(shape.sizes), "at most " + std::to_string(MAX_BYTES) + " bytes");
  return shape;
}

void check_index(int64_t index, size_t count, const char* what, const Where& where) {
  if (index >= 0 && index < static_cast<int64_t>(count)) return;
  broken(std::string(what) + " index out of range", where, std::to_string(index),
         "0 to " + std::to_string(static_cast<int64_t>(count) - 1));
}

namespace {

[[noreturn]] void offset_out_of_range(int64_t given, const Where& where) {
  broken("offset out of range", where, std::to_string(given), "a byte offset from 0 to " + std::to_string(MAX_BYTES));
}

void check_alignment(int64_t begin, int64_t alignment, const Where& where) {
  if (begin % alignment)
    broken("offset is not aligned", where, "byte " + std::to_string(begin),
           "a multiple of " + std::to_string(alignment));
}

}  // namespace

void check_offset(int64_t begin, int64_t alignment, const Where& where) {
  if (begin < 0 || begin > MAX_BYTES) offset_out_of_range(begin, where);
  check_alignment(begin, alignment, where);
}

int64_t add_offset(int64_t base, int64_t elements, int32_t dtype, const Where& where) {
  const int64_t item = item_bytes(dtype);
  int64_t begin = 0;
  if (__builtin_mul_overflow(elements, item, &begin) || __builtin_add_overflow(begin, base, &begin) || begin < 0 ||
      begin > MAX_BYTES)
    offset_out_of_range(elements, where);
  check_alignment(begin, item, where);
  return begin;
}

int64_t table_bytes(std::span<const int64_t> sizes, int32_t dtype, const Where& where) {
  if (std::ranges::any_of(sizes, [](int64_t n) { return n < 1; }))
    broken("size below 1", where, numbers(sizes), "sizes of at least 1");
  int64_t bytes = item_bytes(dtype);
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(bytes, size, &bytes)) bytes = MAX_BYTES + 1;
  if (bytes > MAX_BYTES)
    broken("tensor is too large", where, numbers(sizes), "at most " + std::to_string(MAX_BYTES) + " bytes");
  return bytes;
}

void check_range(const Range& range, int64_t capacity, const Where& where) {
  check_offset(range.begin, plan_format::ALIGNMENT, where);
  if (range.end > capacity)
    broken("range outside its region", where, range.text(), "an end of at most " + std::to_string(capacity));
}

bool reads_symbol(const Expr& expr, std::string_view symbol) {
  if (expr.kind == Expr::Kind::symbol) return expr.symbol == symbol;
  return std::ranges::any_of(expr.operands, [&](const Expr& operand) { return reads_symbol(operand, symbol); });
}

std::string launch_place(const Method& method, int64_t index, const Launch& launch) {
  return "method " + method.name + ", launch " + std::to_string(index) + " " + launch.name;
}

std::string value_place(const Method& method, int64_t index) {
  return "method " + method.name + ", value " + std::to_string(index) + " " + method.values[index].name;
}

std::string numbers(std::span<const int64_t> values) {
  std::string text = "[";
  for (int64_t value : values) {
    if (text.size() > 1) text += ",";
    text += std::to_string(value);
  }
  return text += "]";
}

std::string join_names(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i ? " " : "") + names[i];
  return text;
}

}  // namespace dsv41c::verifier
