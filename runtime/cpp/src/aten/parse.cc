// Reads the locals of a composite body and hands its calls to schema.cc.
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "composite.h"

namespace dsv41c::aten {
namespace {

// Index = dsv41c_dtype.
constexpr std::array<std::pair<const char*, at::ScalarType>, 10> DTYPES{{
    {"float32", at::kFloat},
    {"bfloat16", at::kBFloat16},
    {"float8_e4m3fn", at::kFloat8_e4m3fn},
    {"float8_e8m0fnu", at::kFloat8_e8m0fnu},
    {"int8", at::kChar},
    {"uint8", at::kByte},
    {"int32", at::kInt},
    {"int64", at::kLong},
    {"float64", at::kDouble},
    {"bool", at::kBool},
}};

std::vector<Expr> expressions(const nlohmann::json& node, const std::string& path) {
  std::vector<Expr> out;
  for (const auto& item : node) out.push_back(parse_expr(item, path));
  return out;
}

at::Tensor constant(const nlohmann::json& value, at::ScalarType dtype) {
  const at::Scalar scalar =
      value.is_object() ? at::Scalar(std::stod(value.at("f").get<std::string>())) : at::Scalar(value.get<int64_t>());
  return at::scalar_tensor(scalar, at::TensorOptions().dtype(dtype));
}

Local parse_local(const nlohmann::json& node, size_t own_index) {
  const std::string path = "locals[" + std::to_string(own_index) + "]";
  const auto kind = node.at("kind").get<std::string>();
  Local local;
  local.dtype = scalar_type(node.at("dtype").get<std::string>());
  if (kind == "constant") {
    local.kind = LocalKind::constant;
    local.constant = constant(node.at("value"), local.dtype);
    return local;
  }
  local.sizes = expressions(node.at("sizes"), path + ".sizes");
  local.strides = expressions(node.at("strides"), path + ".strides");
  if (local.sizes.size() != local.strides.size())
    throw std::invalid_argument(path + " has " + std::to_string(local.sizes.size()) + " sizes and " +
                                std::to_string(local.strides.size()) + " strides");
  if (kind == "arg") {
    local.kind = LocalKind::arg;
    local.index = node.at("index").get<size_t>();
    return local;
  }
  local.offset = parse_expr(node.at("offset"), path + ".offset");
  if (kind == "temp") {
    local.kind = LocalKind::temp;
  } else if (kind == "view") {
    local.kind = LocalKind::view;
    local.index = node.at("of").get<size_t>();
    if (local.index >= own_index)
      throw std::invalid_argument(path + " looks into local " + std::to_string(local.index) +
                                  ", needed an earlier one");
  } else {
    throw std::invalid_argument(path + " is of unknown kind " + kind);
  }
  return local;
}

}  // namespace

at::ScalarType scalar_type(const std::string& name) {
  for (const auto& [known, type] : DTYPES)
    if (name == known) return type;
  throw std::invalid_argument("unknown dtype " + name);
}

at::ScalarType scalar_type(int32_t code) {
  if (code < 0 || code >= static_cast<int32_t>(DTYPES.size()))
    throw std::invalid_argument("unknown dtype code " + std::to_string(code));
  return DTYPES[code].second;
}

Composite parse_composite(const nlohmann::json& body) {
  Composite composite;
  for (const auto& node : body.at("locals")) composite.locals.push_back(parse_local(node, composite.locals.size()));
  for (const auto& node : body.at("calls")) composite.calls.push_back(parse_call(node, composite.locals));
  return composite;
}

}  // namespace dsv41c::aten
