#include "expr.h"

#include <algorithm>

#include "error.h"
#include "json_reader.h"

namespace dsv41c {

using nlohmann::json;
using plan_format::Operator;

namespace {

[[noreturn]] void fail(std::string subject, std::string found, std::string needed, std::string action,
                       std::optional<std::string> where = {}) {
  throw Error({.code = plan_format::E0504,
               .subject = std::move(subject),
               .where = std::move(where),
               .found = std::move(found),
               .needed = std::move(needed),
               .action = std::move(action)});
}

// The one evaluator table. Each entry returns true on int64 overflow; divisors are at least 1 here.
using Apply = bool (*)(int64_t a, int64_t b, int64_t* result);

bool floordiv(int64_t a, int64_t b, int64_t* result) {
  *result = a / b - (a % b < 0);
  return false;
}
bool ceildiv(int64_t a, int64_t b, int64_t* result) {
  *result = a / b + (a % b > 0);
  return false;
}

constexpr Apply TABLE[] = {
    [](int64_t a, int64_t b, int64_t* r) { return __builtin_add_overflow(a, b, r); },
    [](int64_t a, int64_t b, int64_t* r) { return __builtin_sub_overflow(a, b, r); },
    [](int64_t a, int64_t b, int64_t* r) { return __builtin_mul_overflow(a, b, r); },
    floordiv,
    ceildiv,
    [](int64_t a, int64_t b, int64_t* r) { return *r = std::min(a, b), false; },
    [](int64_t a, int64_t b, int64_t* r) { return *r = std::max(a, b), false; },
};
static_assert(std::size(TABLE) == std::size(plan_format::OPERATOR_NAMES));

std::string_view name_of(Operator op) { return plan_format::OPERATOR_NAMES[static_cast<size_t>(op)]; }

int64_t apply(Operator op, int64_t a, int64_t b) {
  const auto text = [&] { return std::to_string(a) + " " + std::string(name_of(op)) + " " + std::to_string(b); };
  if ((op == Operator::floordiv || op == Operator::ceildiv) && b <= 0)
    fail("division by less than 1", text(), "a divisor of at least 1", "rebuild the plan");
  int64_t result = 0;
  if (TABLE[static_cast<size_t>(op)](a, b, &result))
    fail("result outside int64", text(), "a result that int64 holds", "lower the bound of the symbol");
  return result;
}

int64_t unknown_symbol(const std::string& name, const Symbols& symbols) {
  std::string known;
  for (const auto& [key, value] : symbols) known += (known.empty() ? "" : ", ") + key;
  fail("unknown symbol", "symbol " + name, "one of: " + (known.empty() ? "none" : known), "rebuild the plan");
}

bool is_int64(const json& node) {
  return node.is_number_integer() && !(node.is_number_unsigned() && node.get<uint64_t>() > uint64_t{INT64_MAX});
}

std::optional<Operator> operator_of(const json& node) {
  if (!node.is_array() || node.size() != 3 || !node[0].is_string()) return {};
  const auto& names = plan_format::OPERATOR_NAMES;
  const auto found = std::ranges::find(names, node[0].get_ref<const std::string&>());
  if (found == std::end(names)) return {};
  return static_cast<Operator>(found - std::begin(names));
}

Expr parse(const json& node, const Path& path, int depth) {
  if (depth > plan_format::MAX_EXPRESSION_DEPTH) {
    const std::string limit = std::to_string(plan_format::MAX_EXPRESSION_DEPTH) + " levels";
    fail("expression too deep", "more than " + limit, "at most " + limit, "rebuild the plan", path.text());
  }
  Expr expr;
  if (node.is_string() && !node.get_ref<const std::string&>().empty()) {
    expr.kind = Expr::Kind::symbol;
    expr.symbol = node.get<std::string>();
  } else if (is_int64(node)) {
    expr.value = node.get<int64_t>();
  } else if (const auto op = operator_of(node)) {
    expr.kind = Expr::Kind::binary;
    expr.op = *op;
    for (size_t i : {1, 2}) expr.operands.push_back(parse(node[i], Path(path, i), depth + 1));
  } else {
    fail("not an expression", describe(node),
         "an int64, a symbol or [op, a, b] with op one of " + join(plan_format::OPERATOR_NAMES), "rebuild the plan",
         path.text());
  }
  return expr;
}

}  // namespace

Expr parse_expr(const json& node, const Path& path) { return parse(node, path, 0); }
Expr parse_expr(const json& node, const std::string& path) { return parse(node, Path(path), 0); }

int64_t evaluate(const Expr& expr, const Symbols& symbols) {
  if (expr.kind == Expr::Kind::constant) return expr.value;
  if (expr.kind == Expr::Kind::symbol) {
    const auto found = symbols.find(expr.symbol);
    return found != symbols.end() ? found->second : unknown_symbol(expr.symbol, symbols);
  }
  const int64_t a = evaluate(expr.operands[0], symbols), b = evaluate(expr.operands[1], symbols);
  return apply(expr.op, a, b);
}

namespace {

bool is_constant(const Expr& expr) {
  return expr.kind != Expr::Kind::symbol && std::ranges::all_of(expr.operands, is_constant);
}

// By form, for symbols of at least 1.
bool is_never_negative(const Expr& expr) {
  if (expr.kind == Expr::Kind::constant) return expr.value >= 0;
  return expr.op != Operator::subtract && std::ranges::all_of(expr.operands, is_never_negative);
}

}  // namespace

bool never_falls(const Expr& expr) {
  if (expr.kind != Expr::Kind::binary || is_constant(expr)) return true;
  const Expr &a = expr.operands[0], &b = expr.operands[1];
  switch (expr.op) {
    case Operator::subtract:
    case Operator::floordiv:
    case Operator::ceildiv:
      return never_falls(a) && is_constant(b);
    case Operator::multiply:
      return never_falls(a) && never_falls(b) && (is_constant(b) || is_never_negative(a)) &&
             (is_constant(a) || is_never_negative(b));
    default:
      return never_falls(a) && never_falls(b);
  }
}

void collect_symbols(const Expr& expr, std::set<std::string>& into) {
  if (expr.kind == Expr::Kind::symbol) into.insert(expr.symbol);
  for (const Expr& operand : expr.operands) collect_symbols(operand, into);
}

std::string to_text(const Expr& expr) {
  if (expr.kind == Expr::Kind::constant) return std::to_string(expr.value);
  if (expr.kind == Expr::Kind::symbol) return "\"" + expr.symbol + "\"";
  return "[\"" + std::string(name_of(expr.op)) + "\"," + to_text(expr.operands[0]) + "," + to_text(expr.operands[1]) +
         "]";
}

}  // namespace dsv41c
