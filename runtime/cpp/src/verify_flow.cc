// Rules of order and of reuse: write before read, bridges across a flow, and no byte with two owners at once.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

class Dataflow {
 public:
  Dataflow(const Method& method, const std::vector<Placed>& placed) : method_(method), placed_(placed) {
    for (const Port& port : method.inputs) written_.insert(placed[port.value].root);
  }

  void run(int64_t index, const Launch& launch) {
    const auto where = [&] { return launch_place(method_, index, launch); };
    for (const Argument& argument : launch.tensors)
      if (argument.kind == ArgumentKind::in || argument.kind == ArgumentKind::inout) read(argument.value, where);
    for (const Argument& argument : launch.tensors)
      if (writes(argument)) write(placed_[argument.value]);
  }

  void check_outputs() const {
    for (const Port& port : method_.outputs)
      if (!written_.contains(placed_[port.value].root))
        broken("output is never written", "method " + method_.name + ", output " + port.name,
               value_place(method_, port.value), "a launch that writes it");
  }

  BridgeUse use;

 private:
  void read(int64_t index, const Where& where) {
    const Placed& value = placed_[index];
    const StorageKind kind = value.storage->kind;
    if (kind == StorageKind::bridge && !use.written.contains(value.storage->index) &&
        !use.needed.contains(value.storage->index))
      use.needed[value.storage->index] = where.text();
    if ((kind == StorageKind::arena || kind == StorageKind::io) && !written_.contains(value.root))
      broken("value is read before it is written", where, value_place(method_, index),
             "an earlier launch that writes it");
  }

  void write(const Placed& value) {
    written_.insert(value.root);
    if (value.storage->kind == StorageKind::bridge) use.written.insert(value.storage->index);
  }

  const Method& method_;
  const std::vector<Placed>& placed_;
  std::set<int64_t> written_;
};

std::string place_in_method(const void* owner, int64_t root) {
  return value_place(*static_cast<const Method*>(owner), root);
}

}  // namespace

BridgeUse check_dataflow(const Method& method, const std::vector<Placed>& placed) {
  Dataflow flow(method, placed);
  for_each_launch(method, [&](int64_t index, const Launch& launch) { flow.run(index, launch); });
  flow.check_outputs();
  return std::move(flow.use);
}

void check_flows(const Plan& plan, const std::vector<BridgeUse>& uses) {
  for (const Flow& flow : plan.flows) {
    std::set<int64_t> written;
    for (const std::string& name : flow.methods) {
      const auto method = std::ranges::find(plan.methods, name, &Method::name);
      const BridgeUse& use = uses[method - plan.methods.begin()];
      for (const auto& [bridge, where] : use.needed)
        if (!written.contains(bridge))
          broken("bridge is read before it is written", where,
                 "bridge " + plan.bridges[bridge].name + " in flow " + flow.name,
                 "an earlier method of the flow that writes it");
      written.insert(use.written.begin(), use.written.end());
    }
  }
}

void check_lifetimes(const Method& method, const std::vector<Placed>& placed) {
  std::map<int64_t, Lifetime> lives;
  for_each_launch(method, [&](int64_t moment, const Launch& launch) {
    const auto use = [&](int64_t index) {
      const int64_t root = placed[index].root;
      if (placed[root].storage->kind != StorageKind::arena) return;
      const Lifetime life{place_in_method, &method, root, placed[root].hi(), moment, moment};
      lives.try_emplace(root, life).first->second.last = moment;
    };
    for (const Argument& argument : launch.tensors)
      if (argument.kind != ArgumentKind::none) use(argument.value);
    if (launch.scratch) use(*launch.scratch);
  });
  std::vector<Lifetime> ordered;
  for (const auto& [root, life] : lives) ordered.push_back(life);
  check_disjoint_lives(std::move(ordered));
}

void check_disjoint_lives(std::vector<Lifetime> lives) {
  std::ranges::stable_sort(lives, {}, &Lifetime::first);
  std::vector<const Lifetime*> alive;
  for (const Lifetime& life : lives) {
    std::erase_if(alive, [&](const Lifetime* other) { return other->last < life.first; });
    for (const Lifetime* other : alive)
      if (life.bytes.overlaps(other->bytes))
        broken("two live values overlap", life.place(life.owner, life.root),
               life.bytes.text() + ", also " + other->place(other->owner, other->root),
               "bytes that are free from launch " + std::to_string(life.first) + " to " + std::to_string(life.last));
    alive.push_back(&life);
  }
}

}  // namespace dsv41c::verifier
