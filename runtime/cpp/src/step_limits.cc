// Reads the limits from the state tensors that every V4.1 plan has, from kernels' attributes and the logits output.
#include "step_limits.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

const State* find_state(const Plan& plan, std::string_view name, size_t rank) {
  for (const State& s : plan.state)
    if (s.name == name && s.dtype == DSV41C_INT32 && s.sizes.size() == rank) return &s;
  return nullptr;
}

[[noreturn]] void refuse(const std::string& subject, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = subject,
               .found = found,
               .needed = needed,
               .action = "compile the artifact again; its plan was changed or its compiler is wrong"});
}

std::optional<int64_t> block_size(const Plan& plan) {
  for (const Kernel& k : plan.kernels) {
    if (k.op != "dsv41c::row_table") continue;
    const auto body = nlohmann::json::parse(k.body);
    const auto attributes = body.find("attributes");
    const bool given = attributes != body.end() && attributes->contains("block_size");
    const auto size = given ? attributes->at("block_size") : nlohmann::json();
    if (!size.is_number_integer() || size.get<int64_t>() < 1)
      refuse("block_size of dsv41c::row_table", size.dump(), "an integer of at least 1");
    return size.get<int64_t>();
  }
  return std::nullopt;
}

// What a placed slot replays, which every attention kernel of the plan says; 0 where there is none.
int64_t window_size(const Plan& plan) {
  nlohmann::json size = 0;
  for (const Kernel& k : plan.kernels) {
    const auto body = nlohmann::json::parse(k.body);
    const auto attributes = body.find("attributes");
    if (attributes == body.end() || !attributes->contains("window_size")) continue;
    const auto& given = attributes->at("window_size");
    if (!given.is_number_integer() || given.get<int64_t>() < 1 || (size != 0 && given != size))
      refuse("window_size of " + k.op, given.dump(), "an integer of at least 1, the same in all kernels");
    size = given;
  }
  return size.get<int64_t>();
}

// n-grams of n tokens look back at n - 1: the second size of the hash's multipliers [layers, n].
int64_t history(const Plan& plan) {
  constexpr size_t MULTIPLIERS = 2;
  int64_t tokens = 0;
  for (const Method& method : plan.methods)
    for (const Step& step : method.steps)
      for (const Launch& launch : step.launches) {
        if (plan.kernels[static_cast<size_t>(launch.kernel)].op != "dsv41c::engram_hash") continue;
        const bool given = launch.tensors.size() > MULTIPLIERS && launch.tensors[MULTIPLIERS].value >= 0;
        const auto* value = given ? &method.values[static_cast<size_t>(launch.tensors[MULTIPLIERS].value)] : nullptr;
        if (!value || value->sizes.size() != 2 || value->sizes[1].kind != Expr::Kind::constant)
          refuse("launch " + launch.name, "no multipliers of two sizes", "those of dsv41c::engram_hash");
        tokens = std::max(tokens, value->sizes[1].value - 1);
      }
  return tokens;
}

// Pad rows carry num_slots as their slot, and kernels read the state of that slot.
void check_pad_slot(const Plan& plan, int64_t slots) {
  for (const Kernel& k : plan.kernels) {
    if (k.op != "dsv41c::take_row_table") continue;
    const auto body = nlohmann::json::parse(k.body);
    const auto attributes = body.find("attributes");
    const auto given = attributes != body.end() ? attributes->value("num_slots", nlohmann::json()) : nlohmann::json();
    if (!given.is_number_integer() || given.get<int64_t>() != slots)
      refuse("num_slots of dsv41c::take_row_table", given.dump(), std::to_string(slots) + ", as the state has");
  }
}

// The upload's checks read all three with the slot as index.
void check_slots(std::initializer_list<const State*> states) {
  const State* first = nullptr;
  for (const State* state : states) {
    if (!state) continue;
    if (!first) first = state;
    if (state->sizes[0] != first->sizes[0])
      refuse("state " + state->name, std::to_string(state->sizes[0]) + " slots",
             std::to_string(first->sizes[0]) + ", as in " + first->name);
  }
}

// The fill is the trash page, whose id is the number of pages; a page takes room in the state.
int64_t num_pages(const Plan& plan, const State& page_table) {
  const int64_t most = std::min<int64_t>(plan.memory.state_bytes, std::numeric_limits<int32_t>::max());
  if (page_table.fill < 0 || page_table.fill > most)
    refuse("fill of state page_table", std::to_string(page_table.fill),
           "a number of pages, at most " + std::to_string(most));
  return page_table.fill;
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
  const State* token = find_state(plan, "slot_token", 1);
  const State* floor = find_state(plan, "window_floor", 1);
  const State* replay = find_state(plan, "replay_floor", 1);
  const State* ring = find_state(plan, "token_ring", 2);
  check_slots({position, token, pages, floor, replay, ring});
  limits.skips_rows = floor && position;
  limits.slot_position = address(position);
  limits.slot_token = address(token);
  limits.page_table = address(pages);
  limits.block_size = block_size(plan);
  limits.window = window_size(plan);
  limits.history = history(plan);
  const bool holds_history = limits.history == 0 || (ring && ring->sizes[1] >= limits.history);
  limits.replays = replay && position && pages && limits.block_size && limits.window > 0 && holds_history;
  limits.vocabulary = vocabulary(plan);
  limits.positions = integer_option(plan, "max_model_len");
  if (const int64_t drafts = integer_option(plan, "draft_len").value_or(0); drafts > 0) limits.backtrack = drafts + 1;
  if (position) limits.slots = position->sizes[0] - 1;  // the last one is the trash slot
  if (limits.slots) check_pad_slot(plan, *limits.slots);
  if (pages) {
    limits.pages = num_pages(plan, *pages);
    limits.pages_per_slot = pages->sizes[1];
    if (limits.block_size) {
      int64_t held = 0;
      if (__builtin_mul_overflow(*limits.pages_per_slot, *limits.block_size, &held))
        held = std::numeric_limits<int32_t>::max();
      limits.positions = std::min(limits.positions.value_or(held), held);
    }
  }
  return limits;
}

}  // namespace dsv41c
