// What slots have held: how far they can be rolled back, and what may be drafted behind them.
#include <algorithm>

#include "upload.h"
#include "upload_refusals.h"

namespace dsv41c {

// The step's rows are in the positions that the host knows.
void UploadCheck::enqueued(const dsv41c_step_inputs& inputs) {
  if (high_.empty()) return;
  int64_t next = 0;  // of keep_rows
  for (int64_t first = 0; first < inputs.num_rows;) {
    const int32_t* head = inputs.upload + first * NUM_UPLOAD_COLUMNS;
    int64_t end = first + 1;
    while (end < inputs.num_rows && inputs.upload[end * NUM_UPLOAD_COLUMNS + SLOT] == head[SLOT]) ++end;
    const int32_t position = limits_.slot_position[head[SLOT]];
    int32_t& high = high_[static_cast<size_t>(head[SLOT])];
    high = head[FLAGS] & START ? position : std::max(high, position);
    if (limits_.skips_rows) note_kept(inputs, first, end, &next);
    if (limits_.replays) note_pages(inputs, first, end);
    first = end;
  }
}

void UploadCheck::note_kept(const dsv41c_step_inputs& inputs, int64_t first, int64_t end, int64_t* next) {
  const auto slot = static_cast<size_t>(inputs.upload[first * NUM_UPLOAD_COLUMNS + SLOT]);
  for (int64_t i = first; i < end; ++i) {
    const int32_t position = limits_.slot_position[slot] - static_cast<int32_t>(end - i);
    const bool kept = *next < inputs.num_keep && inputs.keep_rows[*next] == i;
    *next += kept;
    gap_[slot] = !kept;
    if (position == 0 || inputs.upload[i * NUM_UPLOAD_COLUMNS + FLAGS] & FLOOR) kept_from_[slot] = position;
  }
}

// The slot's prefix too: a row has run behind its placing, or it has started afresh.
void UploadCheck::note_pages(const dsv41c_step_inputs& inputs, int64_t first, int64_t end) {
  const int32_t* head = inputs.upload + first * NUM_UPLOAD_COLUMNS;
  Prefix& prefix = prefix_[static_cast<size_t>(head[SLOT])];
  prefix = {head[FLAGS] & START ? 0 : prefix.length, false};
  for (int64_t i = first; i < end; ++i) {
    const int32_t page = inputs.upload[i * NUM_UPLOAD_COLUMNS + PAGE];
    if (page >= 0) sealed_[static_cast<size_t>(page)] = 0;
  }
}

void UploadCheck::check_draft(const int32_t* upload, int64_t num_groups) {
  if (num_groups < 1) refuse("draft upload", std::to_string(num_groups) + " rows", "at least 1 row", "skip the call");
  check_list("draft upload", upload, num_groups);
  ++step_;
  for (int64_t i = 0; i < num_groups; ++i) {
    const int32_t* row = upload + i * NUM_UPLOAD_COLUMNS;
    check_row(row, i);
    mark_slot(i, row[SLOT], "each slot once");
    if (row[OFFSET] != 0) refuse_row(i, "OFFSET", row[OFFSET], "0: the executor makes the rows of a draft");
    if (row[FLAGS] != 0) refuse_row(i, "FLAGS", row[FLAGS], "0 in a draft");
    if (row[PAGE] != -1) refuse_row(i, "PAGE", row[PAGE], "-1: a draft stores nothing");
    const int64_t position = base_of(row, i);
    if (position == 0 || (limits_.positions && position >= *limits_.positions))
      refuse_row(i, "SLOT", row[SLOT],
                 "a slot with a position before the draft and room behind it; it holds " + std::to_string(position) +
                     (limits_.positions ? " of " + std::to_string(*limits_.positions) + " positions" : " positions"));
  }
}

void UploadCheck::check_rollback(const int32_t* slots, const int32_t* lengths, int64_t count) {
  if (count < 1) refuse("rollback", std::to_string(count) + " slots", "at least 1 slot", "skip the call");
  check_list("slots", slots, count);
  check_list("lengths", lengths, count);
  ++step_;
  for (int64_t i = 0; i < count; ++i) {
    const auto refused = [&](const char* field, int64_t found, const std::string& needed) {
      refuse("rollback entry " + std::to_string(i) + ", " + field, std::to_string(found), needed,
             "correct the call; no state was changed");
    };
    if (slots[i] < 0 || slots[i] >= static_cast<int64_t>(high_.size()))
      refused("slot", slots[i], "at least 0 and below " + std::to_string(high_.size()));
    const auto slot = static_cast<size_t>(slots[i]);
    if (seen_[slot] == step_) refused("slot", slots[i], "each slot once");
    seen_[slot] = step_;
    const int64_t position = limits_.slot_position[slot], high = std::max<int64_t>(high_[slot], position);
    if (lengths[i] < 1 || lengths[i] > position)
      refused("length", lengths[i],
              "at least 1 and at most " + std::to_string(position) + ", the position of slot " + std::to_string(slot));
    if (high - lengths[i] > limits_.backtrack)
      refused(
          "length", lengths[i],
          "at least " + std::to_string(high - limits_.backtrack) + ": slot " + std::to_string(slot) + " has held " +
              std::to_string(high) + " positions, and " + std::to_string(limits_.backtrack) +
              " of them can be forgotten (--draft-len + 1, 0 without drafts), for what lies before was overwritten");
    const int64_t prefix = prefix_.empty() ? 0 : prefix_[slot].length;
    if (lengths[i] < first_replayed(prefix))
      refused("length", lengths[i],
              "at least " + std::to_string(first_replayed(prefix)) + ", where the windows of slot " +
                  std::to_string(slot) + " begin behind its prefix of " + std::to_string(prefix));
  }
}

// Behind a gap the next kept row says again where its windows begin.
void UploadCheck::rolled_back(const int32_t* slots, const int32_t* lengths, int64_t count) {
  if (!limits_.skips_rows) return;
  for (int64_t i = 0; i < count; ++i) {
    const auto slot = static_cast<size_t>(slots[i]);
    if (lengths[i] <= kept_from_[slot]) gap_[slot] = 1;
  }
}

void UploadCheck::forget_steps() {
  std::ranges::fill(gap_, uint8_t{0});
  std::ranges::fill(kept_from_, 0);
  std::ranges::fill(prefix_, Prefix{});
  std::ranges::fill(sealed_, uint8_t{0});
}

void UploadCheck::place_slots() { std::copy_n(limits_.slot_position, high_.size(), high_.begin()); }

}  // namespace dsv41c
