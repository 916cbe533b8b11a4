#include "state_mirror.h"

#include <algorithm>
#include <cstring>

#include "upload.h"

namespace dsv41c {
namespace {

constexpr const char* FOLLOWED[] = {"slot_position", "slot_token", "page_table"};

}  // namespace

StateMirror::StateMirror(const Plan& plan) {
  for (const State& state : plan.state) {
    if (state.dtype != DSV41C_INT32 || std::ranges::find(FOLLOWED, state.name) == std::end(FOLLOWED)) continue;
    size_t count = 1;
    for (int64_t size : state.sizes) count *= static_cast<size_t>(size);
    entries_[state.name] = {std::vector<int32_t>(count), static_cast<int32_t>(state.fill)};
  }
  fill();
}

void StateMirror::fill() {
  for (auto& [name, entry] : entries_) std::ranges::fill(entry.values, entry.fill);
}

const int32_t* StateMirror::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.values.data();
}

int32_t* StateMirror::values(const char* name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.values.data();
}

void StateMirror::write(const std::string& name, const void* data) {
  const auto found = entries_.find(name);
  if (found != entries_.end())
    std::memcpy(found->second.values.data(), data, found->second.values.size() * sizeof(int32_t));
}

void StateMirror::write_part(const std::string& name, int64_t first, int64_t count, const void* data) {
  const auto found = entries_.find(name);
  if (found != entries_.end())
    std::memcpy(found->second.values.data() + first, data, static_cast<size_t>(count) * sizeof(int32_t));
}

void StateMirror::apply(const dsv41c_step_inputs& inputs, const Limits& limits) {
  int32_t *positions = values("slot_position"), *tokens = values("slot_token"), *pages = values("page_table");
  if (!positions) return;
  for (int64_t i = 0; i < inputs.num_rows; ++i) {
    const int32_t* row = inputs.upload + i * NUM_UPLOAD_COLUMNS;
    int32_t& position = positions[row[SLOT]];  // of the row, then of the next one
    if (row[OFFSET] == 0 && (row[FLAGS] & START)) position = 0;
    if (pages && limits.block_size && row[PAGE] >= 0)
      pages[row[SLOT] * *limits.pages_per_slot + position / *limits.block_size] = row[PAGE];
    ++position;
  }
  if (!tokens) return;
  for (int64_t i = 0; i < inputs.num_logit_rows; ++i) {
    const int32_t row = inputs.keep_rows[inputs.logit_rows[i]];
    tokens[inputs.upload[row * NUM_UPLOAD_COLUMNS + SLOT]] = 0;
  }
}

}  // namespace dsv41c
