// Reads the limits from the state tensors that every V4.1 plan has, the row table kernel and the logits output.
#include "step_limits.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dsv41c {
namespace {

const State* find_state(const Plan& plan, std::string_view name, size_t rank) {
  for (const State& s : plan.state)
    if (s.name == name && s.dtype == DSV41C_INT32 && s.sizes.size() == rank) return &s;
  return nullptr;
}

std::optional<int64_t> block_size(const Plan& plan) {
  for (const Kernel& k : plan.kernels)
    if (k.op == "dsv41c::row_table")
      return nlohmann::json::parse(k.body).at("attributes").at("block_size").get<int64_t>();
  return std::nullopt;
}

std::optional<int64_t> vocabulary(const Plan& plan) {
  for (const Method& method : plan.methods)
    for (const Port& port : method.outputs) {
      const Value& value = method.values[static_cast<size_t>(port.value)];
      if (port.name == "logits" && value.sizes.size() == 2 && value.sizes[1].kind == Expr::Kind::constant)
        return value.sizes[1].value;
    }
  return std::nullopt;
}

std::optional<int64_t> integer_option(const Plan& plan, const char* name) {
  const auto options = nlohmann::json::parse(plan.provenance.options);
  const auto found = options.find(name);
  if (found == options.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace

Limits limits_of(const Plan& plan, const std::function<const int32_t*(const State&)>& host_state) {
  const auto address = [&](const State* state) { return state ? host_state(*state) : nullptr; };
  Limits limits;
  const State* position = find_state(plan, "slot_position", 1);
  const State* pages = find_state(plan, "page_table", 2);
  limits.slot_position = address(position);
  limits.slot_token = address(find_state(plan, "slot_token", 1));
  limits.page_table = address(pages);
  limits.block_size = block_size(plan);
  limits.vocabulary = vocabulary(plan);
  limits.positions = integer_option(plan, "max_model_len");
  if (position) limits.slots = position->sizes[0] - 1;  // the last one is the trash slot
  if (pages) {
    limits.pages = pages->fill;  // every entry starts as the trash page, whose id is the number of pages
    limits.pages_per_slot = pages->sizes[1];
    if (limits.block_size) {
      const int64_t held = *limits.pages_per_slot * *limits.block_size;
      limits.positions = std::min(limits.positions.value_or(held), held);
    }
  }
  return limits;
}

}  // namespace dsv41c
