// Methods of the plan: values, ports, steps and launches.
#include "plan_bodies.h"

namespace dsv41c {

using nlohmann::json;
namespace keys = plan_format::keys;

namespace {

Port read_port(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Port);
  Port port;
  port.name = reader.string("name");
  port.value = reader.integer("value");
  port.pad = reader.integers("pad");
  reader.done();
  return port;
}

Storage read_storage(const json& node, const Path& path) {
  const Case found = read_keyed(node, path, plan_format::STORAGE_NAMES);
  Storage storage;
  storage.kind = static_cast<StorageKind>(found.index);
  if (storage.kind != StorageKind::view) {
    storage.index = read_integer(found.node, found.path);
    return storage;
  }
  ObjectReader reader(found.node, found.path, keys::ViewStorage);
  storage.index = reader.integer("of");
  storage.offset = reader.read("offset", read_expression);
  reader.done();
  return storage;
}

Value read_value(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Value);
  Value value;
  value.name = reader.string("name");
  value.dtype = reader.dtype("dtype");
  value.sizes = reader.read("sizes", read_expressions);
  value.strides = reader.read("strides", read_expressions);
  value.storage = reader.read("storage", read_storage);
  value.pads = static_cast<Pads>(reader.read(
      "pads", [](const json& n, const Path& p) { return read_choice(n, p, "pads", plan_format::PADS_NAMES); }));
  reader.done();
  return value;
}

Launch read_launch(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Launch);
  Launch launch;
  launch.name = reader.string("name");
  launch.kernel = reader.integer("kernel");
  launch.tensors = reader.array("tensors", read_argument);
  launch.scratch = reader.read("scratch", [](const json& n, const Path& p) {
    return n.is_null() ? std::nullopt : std::optional<int64_t>(read_integer(n, p, "an integer or null"));
  });
  reader.done();
  return launch;
}

Step read_step(const json& node, const Path& path) {
  const Case found = read_keyed(node, path, plan_format::STEP_NAMES);
  Step step;
  step.kind = static_cast<StepKind>(found.index);
  const bool is_break = step.kind == StepKind::break_;
  ObjectReader reader(found.node, found.path,
                      is_break ? std::span<const std::string_view>(keys::Break) : keys::Segment);
  if (is_break) {
    step.op = reader.string("op");
    step.reason = reader.string("reason");
  }
  step.launches = reader.array("launches", read_launch);
  reader.done();
  return step;
}

Ladder read_ladder(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Ladder);
  Ladder ladder;
  ladder.policy = reader.string("policy");
  ladder.above = reader.string("above");
  ladder.replay_ns = reader.integer("replay_ns");
  ladder.row_ns = reader.integer("row_ns");
  ladder.eager_ns = reader.integer("eager_ns");
  ladder.block_rows = reader.integer("block_rows");
  reader.done();
  return ladder;
}

}  // namespace

Argument read_argument(const json& node, const Path& path) {
  const Case found = read_keyed(node, path, plan_format::ARGUMENT_NAMES);
  Argument argument;
  argument.kind = static_cast<ArgumentKind>(found.index);
  if (argument.kind == ArgumentKind::none)
    check_true(found.node, found.path);
  else
    argument.value = read_integer(found.node, found.path);
  return argument;
}

Method read_method(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Method);
  Method method;
  method.name = reader.string("name");
  method.axis = reader.string("axis");
  method.symbol = reader.string("symbol");
  method.buckets = reader.integers("buckets");
  method.inputs = reader.array("inputs", read_port);
  method.outputs = reader.array("outputs", read_port);
  method.values = reader.array("values", read_value);
  method.steps = reader.array("steps", read_step);
  method.arena_bytes = reader.integer("arena_bytes");
  method.ladder = reader.read("ladder", read_ladder);
  reader.done();
  return method;
}

}  // namespace dsv41c
