// Rules of ladders: known names, costs in range, and what a method must be like so that its rows can be split.
#include <algorithm>

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

}  // namespace

// A split method replays a graph several times, and each replay writes its bridges from their first row on: a later
// replay must not read what an earlier one wrote, and what follows must take rows by number.
void check_ladders(const Plan& plan, const std::vector<BridgeUse>& uses) {
  for (size_t i = 0; i < plan.methods.size(); ++i) {
    const Method& method = plan.methods[i];
    const std::string where = "method " + method.name;
    check_ladder(method.ladder, where);
    if (!method.ladder.splits()) continue;
    check_form(method, where);
    check_bridges(plan, method, uses[i], where);
  }
  for (const Flow& flow : plan.flows) {
    std::set<int64_t> moved;
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
      if (!method->ladder.splits()) continue;
      is_split = true;
      moved.insert(use.written.begin(), use.written.end());
    }
  }
}

}  // namespace dsv41c::verifier
