// Kernels of the plan: native attributes are only checked, composites and sequences are read for the verifier.
#include <cstdlib>

#include "plan_bodies.h"

namespace dsv41c {

using nlohmann::json;
namespace keys = plan_format::keys;

namespace {

Tag read_tag(const json& node, const Path& path) {
  const Case found = read_keyed(node, path, plan_format::TAG_NAMES);
  Tag tag;
  tag.kind = static_cast<TagKind>(found.index);
  switch (tag.kind) {
    case TagKind::t:
    case TagKind::m:
      tag.locals = {read_integer(found.node, found.path)};
      break;
    case TagKind::ts:
      tag.locals = read_integers(found.node, found.path);
      break;
    case TagKind::i:
      tag.values = {parse_expr(found.node, found.path)};
      break;
    case TagKind::is:
      tag.values = read_expressions(found.node, found.path);
      break;
    case TagKind::f:
      check_hex_float(found.node, found.path);
      break;
    case TagKind::b:
      if (!found.node.is_boolean()) malformed("wrong type", found.path, describe(found.node), "a boolean");
      break;
    case TagKind::dtype:
      read_dtype(found.node, found.path);
      break;
    case TagKind::s:
      read_string(found.node, found.path);
      break;
    case TagKind::none:
      check_true(found.node, found.path);
      break;
  }
  return tag;
}

Call read_call(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Call);
  Call call;
  call.op = reader.string("op");
  call.overload = reader.string("overload");
  call.args = reader.array("args", read_tag);
  reader.done();
  return call;
}

std::span<const std::string_view> keys_of(LocalKind kind) {
  switch (kind) {
    case LocalKind::arg:
      return keys::ArgLocal;
    case LocalKind::temp:
      return keys::TempLocal;
    case LocalKind::view:
      return keys::ViewLocal;
    case LocalKind::constant:
      return keys::ConstantLocal;
  }
  return {};
}

void check_constant(const json& node, const Path& path) {
  if (node.is_number_integer()) {
    read_integer(node, path);
    return;
  }
  constexpr std::string_view names[] = {"f"};
  const Case found = read_keyed(node, path, names, "an integer");
  check_hex_float(found.node, found.path);
}

Local read_local(const json& node, const Path& path, std::span<const std::string_view> kinds) {
  Local local;
  local.kind = static_cast<LocalKind>(read_kind(node, path, kinds).index);
  ObjectReader reader(node, path, keys_of(local.kind), "kind");
  if (local.kind == LocalKind::arg) local.index = reader.integer("index");
  if (local.kind == LocalKind::view) local.index = reader.integer("of");
  local.dtype = reader.dtype("dtype");
  if (local.kind == LocalKind::constant) {
    reader.read("value", [](const json& n, const Path& p) { return check_constant(n, p), 0; });
  } else {
    local.sizes = reader.read("sizes", read_expressions);
    local.strides = reader.read("strides", read_expressions);
    if (local.kind != LocalKind::arg) local.offset = reader.read("offset", read_expression);
  }
  reader.done();
  return local;
}

Local read_composite_local(const json& node, const Path& path) {
  return read_local(node, path, plan_format::LOCAL_NAMES);
}

Local read_sequence_local(const json& node, const Path& path) {
  static_assert(std::size(plan_format::LOCAL_NAMES) == 4 && plan_format::LOCAL_NAMES[3] == "constant");
  return read_local(node, path, std::span(plan_format::LOCAL_NAMES).first(3));  // no constants
}

Part read_part(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Part);
  Part part;
  part.kernel = reader.integer("kernel");
  part.tensors = reader.array("tensors", read_argument);
  part.scratch = reader.read("scratch", read_expression);
  reader.done();
  return part;
}

void check_attribute(const json& node, const Path& path) {
  if (node.is_boolean() || node.is_string()) return;
  if (node.is_number_integer()) {
    read_integer(node, path);
    return;
  }
  constexpr std::string_view names[] = {"f", "dtype"};
  const Case found = read_keyed(node, path, names, "an integer or a boolean or a string");
  if (found.index == 0) check_hex_float(found.node, found.path);
  if (found.index == 1) read_dtype(found.node, found.path);
}

int check_attributes(const json& node, const Path& path) {
  if (!node.is_object()) malformed("wrong type", path, describe(node), "an object");
  for (const auto& [key, value] : node.items()) check_attribute(value, Path(path, key));
  return 0;
}

// A tensor or a place in the scratch.
Param read_pointer(const json& node, const Path& path) {
  static_assert(plan_format::PARAM_NAMES[0] == "tensor" && plan_format::PARAM_NAMES[1] == "scratch");
  const Case found = read_keyed(node, path, std::span(plan_format::PARAM_NAMES).first(2));
  Param pointer;
  pointer.kind = static_cast<ParamKind>(found.index);
  if (pointer.kind == ParamKind::tensor) pointer.tensor = read_integer(found.node, found.path);
  if (pointer.kind == ParamKind::scratch) pointer.value = parse_expr(found.node, found.path);
  return pointer;
}

Param read_tensor_map(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::TensorMapParam);
  Param param = reader.read("tensor", read_pointer);
  TensorMapRecipe& map = param.map;
  map.is_scratch = param.kind == ParamKind::scratch;
  param.kind = ParamKind::tensor_map;
  map.dtype = reader.dtype("dtype");
  map.sizes = reader.read("sizes", read_expressions);
  map.strides = reader.read("strides", read_expressions);
  map.box = reader.integers("box");
  map.element_strides = reader.integers("element_strides");
  const auto choice = [&](std::string_view key, std::span<const std::string_view> names) {
    return static_cast<int32_t>(
        reader.read(key, [&](const json& n, const Path& p) { return read_choice(n, p, key, names); }));
  };
  map.interleave = choice("interleave", plan_format::INTERLEAVES);
  map.swizzle = choice("swizzle", plan_format::SWIZZLES);
  map.l2_promotion = choice("l2_promotion", plan_format::L2_PROMOTIONS);
  map.oob_fill = choice("oob_fill", plan_format::OOB_FILLS);
  reader.done();
  return param;
}

Param read_param(const json& node, const Path& path) {
  const Case found = read_keyed(node, path, plan_format::PARAM_NAMES);
  Param param;
  param.kind = static_cast<ParamKind>(found.index);
  switch (param.kind) {
    case ParamKind::tensor:
      param.tensor = read_integer(found.node, found.path);
      break;
    case ParamKind::float_:
      check_hex_float(found.node, found.path);
      param.number = std::strtof(found.node.get_ref<const std::string&>().c_str(), nullptr);
      break;
    case ParamKind::tensor_map:
      return read_tensor_map(found.node, found.path);
    default:
      param.value = parse_expr(found.node, found.path);
      break;
  }
  return param;
}

CudaLaunch read_transfer(NodeKind kind, const json& node, const Path& path) {
  const bool is_copy = kind == NodeKind::copy;
  using Keys = std::span<const std::string_view>;
  ObjectReader reader(node, path, is_copy ? Keys(keys::CudaCopy) : Keys(keys::CudaMemset));
  CudaLaunch transfer;
  transfer.kind = kind;
  transfer.target = reader.read("target", read_pointer);
  if (is_copy)
    transfer.source = reader.read("source", read_pointer);
  else
    transfer.value = reader.integer("value");
  transfer.bytes = reader.read("bytes", read_expression);
  reader.done();
  return transfer;
}

CudaLaunch read_cuda_launch(const json& outer, const Path& outer_path) {
  const Case found = read_keyed(outer, outer_path, plan_format::NODE_NAMES);
  const auto kind = static_cast<NodeKind>(found.index);
  if (kind != NodeKind::kernel) return read_transfer(kind, found.node, found.path);
  ObjectReader reader(found.node, found.path, keys::CudaLaunch);
  CudaLaunch launch;
  launch.cubin = reader.string("cubin");
  launch.symbol = reader.string("symbol");
  launch.params = reader.array("params", read_param);
  launch.grid = reader.read("grid", read_expressions);
  launch.block = reader.integers("block");
  launch.shared_bytes = reader.integer("shared_bytes");
  reader.done();
  return launch;
}

std::span<const std::string_view> keys_of(BodyKind kind) {
  switch (kind) {
    case BodyKind::native:
      return keys::NativeBody;
    case BodyKind::composite:
      return keys::CompositeBody;
    case BodyKind::cuda:
      return keys::CudaBody;
    case BodyKind::sequence:
      return keys::SequenceBody;
  }
  return {};
}

int read_body(const json& node, const Path& path, Kernel& kernel) {
  kernel.kind = static_cast<BodyKind>(read_kind(node, path, plan_format::BODY_NAMES).index);
  ObjectReader reader(node, path, keys_of(kernel.kind), "kind");
  switch (kernel.kind) {
    case BodyKind::native:
      kernel.entry = reader.string("entry");
      break;
    case BodyKind::composite:
      kernel.locals = reader.array("locals", read_composite_local);
      kernel.calls = reader.array("calls", read_call);
      break;
    case BodyKind::cuda:
      kernel.launches = reader.array("launches", read_cuda_launch);
      break;
    case BodyKind::sequence:
      kernel.locals = reader.array("locals", read_sequence_local);
      kernel.parts = reader.array("parts", read_part);
      break;
  }
  reader.done();
  return 0;
}

}  // namespace

Kernel read_kernel(const json& node, const Path& path) {
  ObjectReader reader(node, path, keys::Kernel);
  Kernel kernel;
  kernel.op = reader.string("op");
  reader.read("attributes", check_attributes);
  reader.read("body", [&](const json& n, const Path& p) { return read_body(n, p, kernel); });
  json body = node.at("body");  // what a provider prepares: the body and the op's attributes
  body["attributes"] = node.at("attributes");
  kernel.body = body.dump();
  kernel.scratch_bytes = reader.read("scratch_bytes", read_expression);
  reader.done();
  return kernel;
}

}  // namespace dsv41c
