// What a step may ask for, read from the plan: slots, pages, positions and token ids.
#pragma once

#include <functional>
#include <optional>

#include "plan.h"

namespace dsv41c {

// A plan without the state or output in question leaves a limit empty, and that check out.
struct Limits {
  std::optional<int64_t> slots;
  std::optional<int64_t> pages;
  std::optional<int64_t> pages_per_slot;
  std::optional<int64_t> block_size;
  std::optional<int64_t> positions;
  std::optional<int64_t> vocabulary;
  int64_t backtrack = 0;                   // positions that a slot can forget
  bool skips_rows = false;                 // the decoder's windows have floors, so that it need not see every row
  bool replays = false;                    // all windows have floors, so that a slot can be placed behind a prefix
  int64_t window = 0;                      // where it replays: rows that a window shows
  int64_t history = 0;                     // tokens before its own that a row looks back at
  const int32_t* slot_position = nullptr;  // null when the plan has no such state
  const int32_t* slot_token = nullptr;
  const int32_t* page_table = nullptr;
};

// host_state: where the host reads a state tensor, or null.
Limits limits_of(const Plan& plan, const std::function<const int32_t*(const State&)>& host_state);

}  // namespace dsv41c
