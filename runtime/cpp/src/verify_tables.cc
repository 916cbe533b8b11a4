// Rules of the plan's tables: features, symbols, memory, weights, state, bridges, method names, flows.
#include <algorithm>

#include "json_reader.h"
#include "plan_bodies.h"
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

const auto name_of = [](const auto& entry) { return entry.name; };

void check_choice(const std::string& text, std::span<const std::string_view> choices, const char* what,
                  const std::string& where) {
  if (std::ranges::find(choices, text) == choices.end())
    broken("unknown " + std::string(what), where, text, "one of: " + join(choices));
}

std::string feature_of(BodyKind kind) {
  switch (kind) {
    case BodyKind::native:
      return "native_cpu";
    case BodyKind::composite:
      return "aten_composites";
    case BodyKind::cuda:
      return "cuda_cubin";
    case BodyKind::sequence:
      return "kernel_sequences";
  }
  return {};
}

void check_features(const Plan& plan) {
  const auto& features = plan.required_features;
  for (const std::string& feature : features) check_feature(feature, "required_features");
  if (std::ranges::adjacent_find(features, std::greater_equal<>()) != features.end())
    broken("features are not sorted", std::string("required_features"), join_names(features), "each once, in order");
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const std::string needed = feature_of(plan.kernels[i].kind);
    if (std::ranges::find(features, needed) == features.end())
      broken("feature is not declared", "kernel " + std::to_string(i) + " " + plan.kernels[i].op, "no " + needed,
             needed + " in required_features");
  }
  check_choice(plan.target, plan_format::TARGETS, "target", "target");
  const BodyKind wrong = plan.target != "cpu" ? BodyKind::native : BodyKind::cuda;
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    if (plan.kernels[i].kind == wrong)
      broken("body of another target", "kernel " + std::to_string(i) + " " + plan.kernels[i].op,
             "a " + std::string(plan_format::BODY_NAMES[static_cast<size_t>(wrong)]) + " body",
             "a body that runs on " + plan.target);
}

void check_symbols(const Plan& plan) {
  check_unique(plan.symbols, name_of, "symbol");
  for (const Symbol& symbol : plan.symbols) {
    if (symbol.name == plan_format::ROWS || symbol.name.empty())
      broken("reserved symbol name", "symbol " + symbol.name, "\"" + symbol.name + "\"", "another name");
    if (symbol.lo < 1 || symbol.lo > symbol.hi)
      broken("bad symbol bounds", "symbol " + symbol.name,
             std::to_string(symbol.lo) + " to " + std::to_string(symbol.hi), "1 <= lo <= hi");
  }
}

void check_memory(const Plan& plan) {
  const Memory& memory = plan.memory;
  const std::pair<const char*, int64_t> parts[] = {{"state_bytes", memory.state_bytes},
                                                   {"bridge_bytes", memory.bridge_bytes},
                                                   {"io_bytes", memory.io_bytes},
                                                   {"arena_bytes", memory.arena_bytes}};
  int64_t total = 0;
  for (const auto& [name, size] : parts) {
    if (size < 0 || size > plan_format::MAX_BYTES || size % plan_format::ALIGNMENT)
      broken("bad memory size", "memory " + std::string(name), std::to_string(size),
             "a multiple of " + std::to_string(plan_format::ALIGNMENT) + " up to " +
                 std::to_string(plan_format::MAX_BYTES));
    total += size;
  }
  if (memory.total_bytes != total)
    broken("memory total is wrong", std::string("memory total_bytes"), std::to_string(memory.total_bytes),
           std::to_string(total) + ", the sum");
  int64_t largest = 0;
  if (!plan.methods.empty()) largest = std::ranges::max_element(plan.methods, {}, &Method::arena_bytes)->arena_bytes;
  if (memory.arena_bytes != largest)
    broken("memory arena is wrong", std::string("memory arena_bytes"), std::to_string(memory.arena_bytes),
           std::to_string(largest) + ", the most of a method");
}

template <class Entry>
void check_table(const std::vector<Entry>& entries, const std::string& what) {
  check_unique(entries, name_of, what);
  for (const Entry& entry : entries) {
    const auto where = [&] { return what + " " + entry.name; };
    if (entry.sizes.size() > static_cast<size_t>(plan_format::MAX_DIMS))
      broken("too many dimensions", where, std::to_string(entry.sizes.size()),
             "at most " + std::to_string(plan_format::MAX_DIMS));
    table_bytes(entry.sizes, entry.dtype, where);
  }
}

void check_state(const std::vector<State>& entries, int64_t capacity) {
  std::vector<const State*> ordered;
  for (const State& entry : entries) ordered.push_back(&entry);
  std::ranges::stable_sort(ordered, {}, &State::offset);
  int64_t end = 0;
  std::string last;
  for (const State* entry : ordered) {
    const auto where = [&] { return "state " + entry->name; };
    check_offset(entry->offset, plan_format::ALIGNMENT, where);
    const Range range{Region::state, 0, entry->offset, entry->offset + table_bytes(entry->sizes, entry->dtype, where)};
    check_range(range, capacity, where);
    if (range.begin < end)
      broken("ranges overlap", where, range.text(),
             "a begin of at least " + std::to_string(end) + ", the end of " + last);
    end = range.end;
    last = entry->name;
  }
}

void check_buckets(const std::vector<int64_t>& buckets, const Symbol& symbol, const std::string& where) {
  int64_t previous = 0;
  for (int64_t bucket : buckets) {
    if (bucket < symbol.lo || bucket > symbol.hi)
      broken("bucket outside the bounds", where, "bucket " + std::to_string(bucket),
             std::to_string(symbol.lo) + " to " + std::to_string(symbol.hi));
    if (bucket <= previous)
      broken("buckets are not ascending", where, std::to_string(bucket) + " after " + std::to_string(previous),
             "each larger");
    previous = bucket;
  }
}

void check_methods(const Plan& plan) {
  check_unique(plan.methods, name_of, "method");
  for (const Method& method : plan.methods) {
    const std::string where = "method " + method.name;
    check_choice(method.axis, plan_format::AXES, "axis", where);
    const auto symbol = std::ranges::find(plan.symbols, method.symbol, &Symbol::name);
    if (symbol == plan.symbols.end())
      broken("unknown symbol", where, "symbol " + method.symbol, "a symbol of the plan");
    check_buckets(method.buckets, *symbol, where);
  }
}

void check_flow(const Flow& flow, const std::vector<std::string>& methods, const std::vector<Method>& all) {
  const std::string where = "flow " + flow.name;
  check_choice(flow.requires_, plan_format::FLOW_REQUIREMENTS, "requirement", where);
  if (flow.methods.empty()) broken("empty flow", where, "no method", "at least one method");
  for (const std::string& name : flow.methods)
    if (std::ranges::find(methods, name) == methods.end())
      broken("unknown method", where, "method " + name, "one of: " + join_names(methods));
  for (const Method& method : all)
    if (method.axis == "groups" && flow.methods.size() > 1 &&
        std::ranges::find(flow.methods, method.name) != flow.methods.end())
      broken("groups beside rows in a flow", where, "method " + method.name + " on axis groups", "a flow of its own");
  if (std::set<std::string>(flow.methods.begin(), flow.methods.end()).size() != flow.methods.size())
    broken("method twice in a flow", where, join_names(flow.methods), "each method once");
}

}  // namespace

void check_tables(const Plan& plan) {
  check_features(plan);
  check_symbols(plan);
  check_memory(plan);
  check_table(plan.weights, "weight");
  check_table(plan.state, "state");
  check_table(plan.bridges, "bridge");
  check_state(plan.state, plan.memory.state_bytes);
  check_methods(plan);
  check_unique(plan.flows, name_of, "flow");
  std::vector<std::string> names;
  for (const Method& method : plan.methods) names.push_back(method.name);
  for (const Flow& flow : plan.flows) check_flow(flow, names, plan.methods);
}

}  // namespace dsv41c::verifier
