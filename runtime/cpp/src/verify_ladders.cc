// Rules of ladders: known names, costs in range, and what a method must be like so that its rows can be divided.
#include <algorithm>
#include <map>

#include "json_reader.h"
#include "plan_bodies.h"
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

void check_choice(const std::string& text, std::span<const std::string_view> choices, const char* what,
                  const std::string& where) {
  if (std::ranges::find(choices, text) == choices.end())
    broken("unknown " + std::string(what), where, text, "one of: " + join(choices));
}

void check_ladder(const Ladder& ladder, const std::string& where) {
  check_choice(ladder.policy, plan_format::BUCKET_POLICIES, "bucket policy", where);
  check_choice(ladder.above, plan_format::ABOVE_LADDER, "rule above the ladder", where);
  const std::pair<const char*, int64_t> costs[] = {
      {"replay_ns", ladder.replay_ns}, {"row_ns", ladder.row_ns}, {"eager_ns", ladder.eager_ns}};
  for (const auto& [name, cost] : costs)
    if (cost < 0 || cost > plan_format::MAX_COST_NS)
      broken("cost out of range", where, std::string(name) + " " + std::to_string(cost),
             "0 to " + std::to_string(plan_format::MAX_COST_NS));
}

[[noreturn]] void unsplittable(const std::string& where, const std::string& found, const std::string& needed) {
  broken("method cannot be split", where, found, needed);
}

void check_form(const Method& method, const std::string& where) {
  if (method.axis != "kept_rows") unsplittable(where, "axis " + method.axis, "axis kept_rows");
  if (method.buckets.empty()) unsplittable(where, "no buckets", "at least one bucket");
  if (!method.outputs.empty()) unsplittable(where, "output " + method.outputs[0].name, "no outputs");
}

// Whether it has a row of one size for each of the symbol; that it has no gaps was checked with its storage.
bool is_rows(const Value& value, const std::string& symbol) {
  return !value.sizes.empty() && value.sizes[0].kind == Expr::Kind::symbol && value.sizes[0].symbol == symbol &&
         std::all_of(value.sizes.begin() + 1, value.sizes.end(),
                     [](const Expr& size) { return size.kind == Expr::Kind::constant; });
}

void check_bridges(const Plan& plan, const Method& method, const BridgeUse& use, const std::string& where) {
  for (int64_t bridge : use.written)
    if (use.needed.contains(bridge))
      unsplittable(where, "bridge " + plan.bridges[bridge].name + ", read before it is written",
                   "bridges that it reads or writes, not both");
  for (size_t i = 0; i < method.values.size(); ++i) {
    const Value& value = method.values[i];
    if (value.storage.kind == StorageKind::bridge && use.written.contains(value.storage.index) &&
        !is_rows(value, method.symbol))
      unsplittable(value_place(method, static_cast<int64_t>(i)), "a bridge that is not written by rows",
                   "sizes [" + method.symbol + ", ...], constant but for the first");
  }
}

bool grows(const Value& value, const std::string& symbol) {
  return std::ranges::any_of(value.sizes, [&](const Expr& size) { return reads_symbol(size, symbol); });
}

// No output, and bridges of flows that hold the rows of a whole step, or are read as a whole.
void check_blocks(const Plan& plan, const Method& method, const BridgeUse& use, int64_t bound) {
  const auto refuse = [](const std::string& where, const std::string& found, const std::string& needed) {
    broken("method cannot run in blocks", where, found, needed);
  };
  if (!method.outputs.empty()) refuse("method " + method.name, "output " + method.outputs[0].name, "no outputs");
  for (size_t i = 0; i < method.values.size(); ++i) {
    const Value& value = method.values[i];
    if (value.storage.kind != StorageKind::bridge || !plan.bridges[value.storage.index].is_of_flow()) continue;
    const std::string where = value_place(method, static_cast<int64_t>(i));
    if (!is_rows(value, method.symbol)) {
      if (use.written.contains(value.storage.index) || grows(value, method.symbol))
        refuse(where, "a bridge that is not used by rows",
               "sizes [" + method.symbol + ", ...], constant but for the first");
      continue;
    }
    const int64_t rows = plan.bridges[value.storage.index].sizes[0];
    if (rows < bound)
      refuse(where, "a bridge of " + std::to_string(rows) + " rows",
             "room for all " + std::to_string(bound) + " rows of a step");
  }
}

}  // namespace

// A split method replays a graph several times, and each replay writes its bridges from their first row on: a later
// replay must not read what an earlier one wrote, and what follows must take rows by number. Blocks of rows enter the
// bridges one behind another.
void check_ladders(const Plan& plan, const std::vector<BridgeUse>& uses) {
  for (size_t i = 0; i < plan.methods.size(); ++i) {
    const Method& method = plan.methods[i];
    const std::string where = "method " + method.name;
    check_ladder(method.ladder, where);
    if (method.ladder.splits()) {
      check_form(method, where);
      check_bridges(plan, method, uses[i], where);
    }
    if (method.ladder.block_rows > 0) check_blocks(plan, method, uses[i], symbol_of(plan, method).hi);
  }
  for (const Flow& flow : plan.flows) {
    std::set<int64_t> moved;
    std::map<int64_t, std::string> regrouped;  // bridge -> axis of the method that wrote it in blocks
    bool is_split = false;
    for (const std::string& name : flow.methods) {
      const auto method = std::ranges::find(plan.methods, name, &Method::name);
      const BridgeUse& use = uses[static_cast<size_t>(method - plan.methods.begin())];
      if (is_split && method->ladder.splits())
        broken("two methods of a flow are split", "flow " + flow.name, "method " + name, "one of them");
      for (int64_t bridge : moved)
        if (use.needed.contains(bridge) && method->axis != "output_rows")
          broken("split rows are read in their old places", "method " + name,
                 "bridge " + plan.bridges[bridge].name + " on axis " + method->axis, "axis output_rows");
      for (const auto& [bridge, axis] : regrouped)
        if (use.needed.contains(bridge) && method->axis == axis)
          broken("rows of blocks are read together", "method " + name,
                 "bridge " + plan.bridges[bridge].name + " on axis " + axis,
                 "another axis, which takes rows by number");
      if (method->ladder.block_rows > 0)
        for (int64_t bridge : use.written) regrouped[bridge] = method->axis;
      if (!method->ladder.splits()) continue;
      is_split = true;
      moved.insert(use.written.begin(), use.written.end());
    }
  }
}

}  // namespace dsv41c::verifier
