#include "plan.h"

#include <algorithm>

#include "error.h"
#include "json_reader.h"
#include "plan_bodies.h"

namespace dsv41c {

using nlohmann::json;
namespace keys = plan_format::keys;

namespace {

Provenance read_provenance(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Provenance);
  Provenance result;
  result.model_digest = reader.string("model_digest");
  result.options = reader.read("options", [](const json& options, const Path& p) {
    if (!options.is_object()) malformed("wrong type", p, describe(options), "an object");
    for (const auto& [key, value] : options.items())
      if (!value.is_string() && !value.is_boolean())
        read_integer(value, Path(p, key), "a string or an integer or a boolean");
    return options.dump();
  });
  result.producer = reader.string("producer");
  reader.done();
  return result;
}

Symbol read_symbol(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Symbol);
  Symbol result;
  result.name = reader.string("name");
  result.lo = reader.integer("lo");
  result.hi = reader.integer("hi");
  reader.done();
  return result;
}

Memory read_memory(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Memory);
  Memory result;
  result.state_bytes = reader.integer("state_bytes");
  result.bridge_bytes = reader.integer("bridge_bytes");
  result.io_bytes = reader.integer("io_bytes");
  result.arena_bytes = reader.integer("arena_bytes");
  result.total_bytes = reader.integer("total_bytes");
  reader.done();
  return result;
}

// Weight, State and Bridge begin with the same three keys.
template <class T>
T read_table_entry(ObjectReader& reader) {
  T result;
  result.name = reader.string("name");
  result.dtype = reader.dtype("dtype");
  result.sizes = reader.integers("sizes");
  return result;
}

Weight read_weight(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Weight);
  auto result = read_table_entry<Weight>(reader);
  reader.done();
  return result;
}

State read_state(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::State);
  auto result = read_table_entry<State>(reader);
  result.offset = reader.integer("offset");
  result.fill = reader.integer("fill");
  reader.done();
  return result;
}

void read_life(const json& node, const Path& path, Bridge& bridge) {
  const Case found = read_keyed(node, path, plan_format::LIFE_NAMES);
  bridge.life = static_cast<LifeKind>(found.index);
  if (bridge.life == LifeKind::flow) return check_true(found.node, found.path);
  ObjectReader reader(found.node, found.path, keys::StepsLife);
  bridge.method = reader.string("method");
  bridge.first = reader.integer("first");
  bridge.last = reader.integer("last");
  reader.done();
}

Bridge read_bridge(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Bridge);
  auto result = read_table_entry<Bridge>(reader);
  result.offset = reader.integer("offset");
  reader.read("life", [&](const json& n, const Path& p) { read_life(n, p, result); });
  reader.done();
  return result;
}

Flow read_flow(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Flow);
  Flow result;
  result.name = reader.string("name");
  result.methods = reader.array("methods", read_string);
  result.requires_ = reader.string("requires");
  reader.done();
  return result;
}

Check read_check(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Check);
  Check result;
  result.prompt = reader.integers("prompt");
  result.tokens = reader.integers("tokens");
  reader.done();
  return result;
}

Plan read_plan(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Plan);
  Plan plan;
  plan.version = reader.integer("version");
  plan.required_features = reader.array("required_features", read_string);
  plan.target = reader.string("target");
  plan.provenance = reader.read("provenance", read_provenance);
  plan.symbols = reader.array("symbols", read_symbol);
  plan.memory = reader.read("memory", read_memory);
  plan.weights = reader.array("weights", read_weight);
  plan.state = reader.array("state", read_state);
  plan.bridges = reader.array("bridges", read_bridge);
  plan.kernels = reader.array("kernels", read_kernel);
  plan.methods = reader.array("methods", read_method);
  plan.flows = reader.array("flows", read_flow);
  plan.checks = reader.array("checks", read_check);
  reader.done();
  return plan;
}

// Version and features come before everything else, so that a newer plan is refused by what it needs.
void check_version(const json& root) {
  if (!root.is_object()) malformed("wrong type", Path(), describe(root), "an object");
  const auto version = root.find("version");
  if (version == root.end() || *version != plan_format::PLAN_VERSION || !version->is_number_integer())
    malformed("unknown plan version", Path(Path(), "version"),
              version == root.end() ? "no version" : describe(*version),
              "integer " + std::to_string(plan_format::PLAN_VERSION));
  const auto features = root.find("required_features");
  if (features == root.end() || !features->is_array()) return;
  for (const json& feature : *features)
    if (feature.is_string()) check_feature(feature.get<std::string>(), "$.required_features");
}

}  // namespace

void check_feature(const std::string& feature, const std::string& where) {
  const auto& known = plan_format::FEATURES;
  if (std::ranges::find(known, feature) != std::end(known)) return;
  throw Error({.code = plan_format::E0503,
               .subject = "plan requires an unknown feature",
               .where = where,
               .found = feature,
               .needed = "one of: " + join(known),
               .action = "use a dsv41c version that has the feature"});
}

Plan parse_plan(std::string_view text) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& e) {
    malformed("plan is not JSON", Path(), e.what(), "canonical JSON in ASCII");
  }
  check_version(root);
  return read_plan(root, Path());
}

const Symbol& symbol_of(const Plan& plan, const Method& method) {
  const auto found = std::ranges::find(plan.symbols, method.symbol, &Symbol::name);
  if (found != plan.symbols.end()) return *found;
  throw Error({.code = plan_format::E0502,
               .subject = "unknown symbol",
               .where = "method " + method.name,
               .found = "symbol " + method.symbol,
               .needed = "a symbol of the plan",
               .action = "rebuild the plan"});
}

int64_t item_bytes(int32_t dtype) { return plan_format::DTYPES[dtype].item_bytes; }

std::string_view dtype_name(int32_t dtype) { return plan_format::DTYPES[dtype].name; }

int32_t parse_dtype(std::string_view name) {
  const auto& table = plan_format::DTYPES;
  const auto found = std::ranges::find(table, name, &plan_format::Dtype::name);
  return found == std::end(table) ? -1 : found->code;
}

std::string_view argument_name(ArgumentKind kind) { return plan_format::ARGUMENT_NAMES[static_cast<size_t>(kind)]; }

}  // namespace dsv41c
