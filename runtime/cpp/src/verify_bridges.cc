// Rules of bridges: no two share bytes while both live, and what a break leaves for later steps lies in one.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

std::string steps_text(int64_t first, int64_t last) {
  return "steps " + std::to_string(first) + " to " + std::to_string(last);
}

Range range_of(const Bridge& bridge) {
  const auto where = [&] { return "bridge " + bridge.name; };
  return {Region::bridge, 0, bridge.offset, bridge.offset + table_bytes(bridge.sizes, bridge.dtype, where)};
}

void check_life(const Plan& plan, const Bridge& bridge, const Where& where) {
  const auto method = std::ranges::find(plan.methods, bridge.method, &Method::name);
  if (method == plan.methods.end()) {
    std::vector<std::string> names;
    for (const Method& each : plan.methods) names.push_back(each.name);
    broken("unknown method", where, "method " + bridge.method, "one of: " + join_names(names));
  }
  const auto steps = static_cast<int64_t>(method->steps.size());
  if (bridge.first < 0 || bridge.first >= bridge.last || bridge.last >= steps)
    broken("bad bridge life", where, steps_text(bridge.first, bridge.last),
           "a break and a later one of the " + std::to_string(steps) + " steps of " + bridge.method);
  if (method->steps[static_cast<size_t>(bridge.first)].kind != StepKind::break_)
    broken("bad bridge life", where, "step " + std::to_string(bridge.first) + ", a segment", "a break as first step");
}

// Methods never run at the same time; a flow's bridge lives through all of them.
bool may_meet(const Bridge& a, const Bridge& b) {
  if (a.life == LifeKind::flow || b.life == LifeKind::flow) return true;
  return a.method == b.method && a.first <= b.last && b.first <= a.last;
}

void check_overlaps(const std::vector<Bridge>& bridges) {
  std::vector<const Bridge*> ordered, near;
  for (const Bridge& bridge : bridges) ordered.push_back(&bridge);
  std::ranges::stable_sort(ordered, {}, &Bridge::offset);
  for (const Bridge* bridge : ordered) {
    std::erase_if(near, [&](const Bridge* other) { return range_of(*other).end <= bridge->offset; });
    for (const Bridge* other : near)
      if (may_meet(*other, *bridge))
        broken("two live bridges overlap", "bridge " + bridge->name, range_of(*bridge).text(),
               "a begin of at least " + std::to_string(range_of(*other).end) + ", the end of " + other->name);
    near.push_back(bridge);
  }
}

class BridgeRules {
 public:
  BridgeRules(const Plan& plan, const Method& method, const std::vector<Placed>& placed)
      : plan_(plan), method_(method), placed_(placed) {}

  void run(int64_t step, int64_t index, const Launch& launch) {
    const auto where = [&] { return launch_place(method_, index, launch); };
    for (const Argument& argument : launch.tensors)
      if (argument.kind != ArgumentKind::none) check(step, argument, where);
    for (const Argument& argument : launch.tensors)
      if (writes(argument)) write(step, placed_[argument.value]);
  }

 private:
  void check(int64_t step, const Argument& argument, const Where& where) const {
    const Placed& value = placed_[argument.value];
    if (value.storage->kind == StorageKind::bridge) check_use(step, argument, value.storage->index, where);
    if (argument.kind == ArgumentKind::out) return;
    const auto left = left_.find(value.root);
    if (left != left_.end() && left->second < step)
      broken("output of a break is in the arena", where, value_place(method_, value.root),
             "a bridge from step " + std::to_string(left->second) + " to step " + std::to_string(step));
  }

  void check_use(int64_t step, const Argument& argument, int64_t index, const Where& where) const {
    const Bridge& bridge = plan_.bridges[index];
    if (bridge.life == LifeKind::flow) return;
    const std::string number = std::to_string(step);
    if (bridge.method != method_.name || step < bridge.first || step > bridge.last)
      broken("bridge is used outside its life", where,
             "bridge " + bridge.name + " in step " + number + " of " + method_.name,
             steps_text(bridge.first, bridge.last) + " of " + bridge.method);
    if (writes(argument) && step != bridge.first)
      broken("bridge is written behind its break", where, "bridge " + bridge.name + " in step " + number,
             "writes in step " + std::to_string(bridge.first) + " only");
    if (argument.kind != ArgumentKind::out && !written_.contains(index))
      broken("bridge is read before it is written", where, "bridge " + bridge.name,
             "an earlier launch of its break that writes it");
  }

  void write(int64_t step, const Placed& value) {
    if (value.storage->kind == StorageKind::bridge) written_.insert(value.storage->index);
    if (value.storage->kind == StorageKind::arena && method_.steps[static_cast<size_t>(step)].kind == StepKind::break_)
      left_.try_emplace(value.root, step);
  }

  const Plan& plan_;
  const Method& method_;
  const std::vector<Placed>& placed_;
  std::set<int64_t> written_;        // bridges
  std::map<int64_t, int64_t> left_;  // arena value that a break wrote -> its step
};

}  // namespace

void check_bridges(const Plan& plan) {
  for (const Bridge& bridge : plan.bridges) {
    const auto where = [&] { return "bridge " + bridge.name; };
    check_offset(bridge.offset, plan_format::ALIGNMENT, where);
    check_range(range_of(bridge), plan.memory.bridge_bytes, where);
    if (bridge.life == LifeKind::steps) check_life(plan, bridge, where);
  }
  check_overlaps(plan.bridges);
}

void check_bridge_use(const Plan& plan, const Method& method, const std::vector<Placed>& placed) {
  BridgeRules rules(plan, method, placed);
  int64_t index = 0;
  for (size_t step = 0; step < method.steps.size(); ++step)
    for (const Launch& launch : method.steps[step].launches) rules.run(static_cast<int64_t>(step), index++, launch);
}

}  // namespace dsv41c::verifier
