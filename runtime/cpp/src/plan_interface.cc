// C entries by which tests compare this side's expressions and verifier with Python's.
#include <nlohmann/json.hpp>

#include "error.h"
#include "json_reader.h"
#include "plan.h"
#include "verify.h"

#define DSV41C_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using nlohmann::json;

json parse_text(const char* text) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    dsv41c::malformed("not JSON", dsv41c::Path(), e.what(), "JSON");
  }
}

dsv41c::Symbols read_symbols(const json& node) {
  if (!node.is_object()) dsv41c::malformed("wrong type", dsv41c::Path(), dsv41c::describe(node), "an object");
  dsv41c::Symbols symbols;
  for (const auto& [name, value] : node.items())
    symbols[name] = dsv41c::read_integer(value, dsv41c::Path(dsv41c::Path(), name));
  return symbols;
}

}  // namespace

// symbols_json: {"name": integer}. 0 and *out, or 1 and the error as JSON.
DSV41C_EXPORT int32_t dsv41c_expr_evaluate(const char* expr_json, const char* symbols_json, int64_t* out,
                                           dsv41c_error* error) {
  return dsv41c::guard(error, [&] {
    const dsv41c::Expr expr = dsv41c::parse_expr(parse_text(expr_json), dsv41c::Path());
    *out = dsv41c::evaluate(expr, read_symbols(parse_text(symbols_json)));
  });
}

// 0 when the plan decodes and passes the verifier, or 1 and the error as JSON.
DSV41C_EXPORT int32_t dsv41c_plan_verify(const char* plan_json, dsv41c_error* error) {
  return dsv41c::guard(error, [&] { dsv41c::verify_plan(dsv41c::parse_plan(plan_json)); });
}
