// Checks a composite's calls against the schemas of the running torch: number, kind and effects of arguments.
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "composite.h"

namespace dsv41c::aten {
namespace {

using c10::TypeKind;
using Json = nlohmann::json;

size_t checked_local(const Json& node, const std::vector<Local>& locals) {
  const auto index = node.get<size_t>();
  if (index >= locals.size())
    throw std::invalid_argument("local " + std::to_string(index) + " of " + std::to_string(locals.size()));
  return index;
}

Operand fixed(c10::IValue value) {
  Operand operand;
  operand.fixed = std::move(value);
  return operand;
}

double real(const Json& node) { return std::stod(node.get<std::string>()); }

bool is_tensor_list(const c10::Type& type, bool* is_optional) {
  if (type.kind() != TypeKind::ListType) return false;
  const auto& element = *type.castRaw<c10::ListType>()->getElementType();
  *is_optional = element.kind() == TypeKind::OptionalType;
  const auto& inner = *is_optional ? *element.castRaw<c10::OptionalType>()->getElementType() : element;
  return inner.kind() == TypeKind::TensorType;
}

bool is_int_list(const c10::Type& type) {
  if (type.kind() != TypeKind::ListType) return false;
  const auto kind = type.castRaw<c10::ListType>()->getElementType()->kind();
  return kind == TypeKind::IntType || kind == TypeKind::SymIntType;
}

[[noreturn]] void refuse(const c10::Type& type, const Json& tag) {
  throw std::invalid_argument("the schema needs " + type.str() + ", found " + tag.dump());
}

Operand tensor(const Json& tag, const c10::Argument& argument, const c10::Type& type,
               const std::vector<Local>& locals) {
  if (type.kind() != TypeKind::TensorType) refuse(type, tag);
  const bool is_written = tag.contains("m");
  const auto* alias = argument.alias_info();
  if (is_written != (alias != nullptr && alias->isWrite()))
    throw std::invalid_argument(std::string("the schema ") + (is_written ? "does not write" : "writes") +
                                " this tensor, found " + tag.dump());
  Operand operand;
  operand.kind = Operand::Kind::tensor;
  operand.locals = {checked_local(is_written ? tag.at("m") : tag.at("t"), locals)};
  if (is_written && locals[operand.locals[0]].kind == LocalKind::constant)
    throw std::invalid_argument("a constant is written by " + tag.dump());
  return operand;
}

Operand tensors(const Json& tag, const c10::Type& type, const std::vector<Local>& locals) {
  bool is_optional = false;
  if (!is_tensor_list(type, &is_optional)) refuse(type, tag);
  Operand operand;
  operand.kind = is_optional ? Operand::Kind::optional_tensors : Operand::Kind::tensors;
  for (const auto& item : tag.at("ts")) operand.locals.push_back(checked_local(item, locals));
  return operand;
}

Operand integer(const Json& tag, const c10::Type& type) {
  Operand operand;
  operand.values = {parse_expr(tag.at("i"), "i")};
  if (type.kind() == TypeKind::NumberType)
    operand.kind = Operand::Kind::scalar;
  else if (type.kind() == TypeKind::IntType || type.kind() == TypeKind::SymIntType)
    operand.kind = Operand::Kind::integer;
  else
    refuse(type, tag);
  return operand;
}

Operand integers(const Json& tag, const c10::Type& type) {
  if (!is_int_list(type)) refuse(type, tag);
  Operand operand;
  operand.kind = Operand::Kind::integers;
  for (const auto& item : tag.at("is")) operand.values.push_back(parse_expr(item, "is"));
  return operand;
}

// dtypes travel as integers in a boxed call; Argument::type() says int, Argument::real_type() ScalarType.
bool takes_dtype(const c10::Argument& argument) {
  auto type = argument.real_type();
  if (type->kind() == TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type->kind() == TypeKind::ScalarTypeType;
}

Operand parse_operand(const Json& tag, const c10::Argument& argument, const std::vector<Local>& locals) {
  const bool is_optional = argument.type()->kind() == TypeKind::OptionalType;
  const c10::Type& type =
      is_optional ? *argument.type()->castRaw<c10::OptionalType>()->getElementType() : *argument.type();
  if (!tag.is_object() || tag.size() != 1) throw std::invalid_argument("not a tag: " + tag.dump());
  if (tag.contains("none")) {
    if (!is_optional) refuse(type, tag);
    return fixed(c10::IValue());
  }
  if (tag.contains("dtype")) {
    if (!takes_dtype(argument)) refuse(type, tag);
    return fixed(c10::IValue(static_cast<int64_t>(scalar_type(tag.at("dtype").get<std::string>()))));
  }
  if (tag.contains("t") || tag.contains("m")) return tensor(tag, argument, type, locals);
  if (tag.contains("ts")) return tensors(tag, type, locals);
  if (tag.contains("i")) return integer(tag, type);
  if (tag.contains("is")) return integers(tag, type);
  if (tag.contains("f")) {
    if (type.kind() == TypeKind::NumberType) return fixed(c10::IValue(at::Scalar(real(tag.at("f")))));
    if (type.kind() == TypeKind::FloatType) return fixed(c10::IValue(real(tag.at("f"))));
    refuse(type, tag);
  }
  if (tag.contains("b")) {
    if (type.kind() == TypeKind::BoolType) return fixed(c10::IValue(tag.at("b").get<bool>()));
    if (type.kind() == TypeKind::NumberType) return fixed(c10::IValue(at::Scalar(tag.at("b").get<bool>())));
    refuse(type, tag);
  }
  if (tag.contains("s")) {
    if (type.kind() != TypeKind::StringType) refuse(type, tag);
    return fixed(c10::IValue(tag.at("s").get<std::string>()));
  }
  throw std::invalid_argument("unknown tag " + tag.dump());
}

}  // namespace

Call parse_call(const Json& node, const std::vector<Local>& locals) {
  const auto op = node.at("op").get<std::string>(), overload = node.at("overload").get<std::string>();
  std::string at = op + (overload.empty() ? "" : "." + overload);
  try {
    // Not findSchemaOrThrow: its exception takes seconds to collect a backtrace.
    const auto found = c10::Dispatcher::singleton().findSchema({op, overload});
    if (!found) throw std::invalid_argument("this torch has no such op");
    Call call{at, *found, {}, {}};
    const auto& arguments = call.op.schema().arguments();
    const auto& tags = node.at("args");
    if (tags.size() != arguments.size())
      throw std::invalid_argument("the schema has " + std::to_string(arguments.size()) + " arguments, found " +
                                  std::to_string(tags.size()));
    for (size_t i = 0; i < arguments.size(); ++i) {
      at = call.name + " argument " + arguments[i].name();
      call.operands.push_back(parse_operand(tags[i], arguments[i], locals));
      if (tags[i].contains("m")) call.written.push_back(call.operands.back().locals[0]);
    }
    return call;
  } catch (const c10::Error& e) {
    throw std::invalid_argument(at + ": " + e.what_without_backtrace());
  } catch (const std::exception& e) {
    throw std::invalid_argument(at + ": " + e.what());
  }
}

}  // namespace dsv41c::aten
