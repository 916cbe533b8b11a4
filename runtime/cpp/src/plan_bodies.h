// The parts of parse_plan that have their own files: kernels (plan_kernels.cc) and methods (plan_methods.cc).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "json_reader.h"
#include "plan.h"

namespace dsv41c {

Kernel read_kernel(const nlohmann::json& node, const Path& path);
Method read_method(const nlohmann::json& node, const Path& path);
Argument read_argument(const nlohmann::json& node, const Path& path);      // of a launch or of a part
void check_feature(const std::string& feature, const std::string& where);  // E0503 when unknown

inline std::vector<Expr> read_expressions(const nlohmann::json& node, const Path& path) {
  return read_array(node, path, [](const nlohmann::json& n, const Path& p) { return parse_expr(n, p); });
}

inline Expr read_expression(const nlohmann::json& node, const Path& path) { return parse_expr(node, path); }

}  // namespace dsv41c
