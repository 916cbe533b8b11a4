// Integer expressions of a plan: int | symbol | [op, a, b], evaluated in int64 with overflow refused.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "dsv41c/plan_generated.h"

namespace dsv41c {

using Symbols = std::map<std::string, int64_t, std::less<>>;

struct Expr {
  enum class Kind { constant, symbol, binary };
  Kind kind = Kind::constant;
  int64_t value = 0;                                      // constant
  std::string symbol;                                     // symbol
  plan_format::Operator op = plan_format::Operator::add;  // binary
  std::vector<Expr> operands;                             // binary: exactly two
};

class Path;  // json_reader.h

// E0504 names the path when node is no expression.
Expr parse_expr(const nlohmann::json& node, const Path& path);
Expr parse_expr(const nlohmann::json& node, const std::string& path);
// E0504 on an unknown symbol, a divisor below 1 or a result outside int64.
int64_t evaluate(const Expr& expr, const Symbols& symbols);
// By form alone: the value never falls as a symbol grows. False says only that the form does not show it.
bool never_falls(const Expr& expr);
void collect_symbols(const Expr& expr, std::set<std::string>& into);
std::string to_text(const Expr& expr);  // compact JSON, for messages

}  // namespace dsv41c
