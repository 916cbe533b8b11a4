// The rules of an upload: rows of a slot lie together, offsets ascend from 0, every id is in range.
#include "upload.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "upload_refusals.h"

namespace dsv41c {
namespace {

[[noreturn]] void refuse_entry(const char* name, int64_t entry, const std::string& found, const std::string& needed) {
  refuse(std::string(name) + " entry " + std::to_string(entry), found, needed,
         "correct the list; no state was changed");
}

void check_ascending(const char* name, const int32_t* list, int64_t count, int64_t end) {
  for (int64_t i = 0; i < count; ++i)
    if (list[i] < 0 || list[i] >= end || (i > 0 && list[i] <= list[i - 1]))
      refuse_entry(name, i, std::to_string(list[i]),
                   "strictly ascending row numbers from 0, below " + std::to_string(end));
}

// Without floors, the windows of a skipped row would show an earlier request's keys.
void check_all_kept(const dsv41c_step_inputs& inputs) {
  if (inputs.num_keep == inputs.num_rows) return;
  refuse("keep_rows", std::to_string(inputs.num_keep) + " of " + std::to_string(inputs.num_rows) + " rows",
         "all rows of the upload: the artifact was compiled with --suffix-mode off",
         "keep every row and choose among them with logit_rows, or compile with --suffix-mode compact; no state was "
         "changed");
}

// What a state tensor may hold; empty when the plan does not say.
struct StateRange {
  const char* name;
  int64_t low;
  std::optional<int64_t> end;
};

}  // namespace

UploadCheck::UploadCheck(Limits limits)
    : limits_(limits),
      seen_(static_cast<size_t>(limits.slots.value_or(0))),
      uses_(static_cast<size_t>(limits.page_table && limits.block_size ? limits.pages.value_or(0) : 0)),
      high_(static_cast<size_t>(limits.slot_position ? limits.slots.value_or(0) : 0)),
      gap_(static_cast<size_t>(limits.skips_rows ? limits.slots.value_or(0) : 0)),
      kept_from_(gap_.size()),
      prefix_(static_cast<size_t>(limits.replays ? limits.slots.value_or(0) : 0)),
      sealed_(limits.replays ? uses_.size() : 0) {}

void UploadCheck::check(const dsv41c_step_inputs& inputs) {
  if (inputs.reserved != 0)
    refuse("step input reserved", std::to_string(inputs.reserved), "0", "clear the struct before it is filled");
  if (inputs.num_rows < 1)
    refuse("upload", std::to_string(inputs.num_rows) + " rows", "at least 1 row", "skip the step");
  check_list("upload", inputs.upload, inputs.num_rows);
  check_list("keep_rows", inputs.keep_rows, inputs.num_keep);
  check_list("logit_rows", inputs.logit_rows, inputs.num_logit_rows);
  ++step_;
  for (int64_t first = 0; first < inputs.num_rows;) first = check_group(inputs.upload, first, inputs.num_rows);
  check_ascending("keep_rows", inputs.keep_rows, inputs.num_keep, inputs.num_rows);
  if (limits_.skips_rows)
    check_kept(inputs);
  else
    check_all_kept(inputs);
  check_ascending("logit_rows", inputs.logit_rows, inputs.num_logit_rows, inputs.num_keep);
}

// The kept rows of a slot are its last ones of the step. Where rows before them were skipped, in this step or an
// earlier one, the first of them says that the windows begin there.
void UploadCheck::check_kept(const dsv41c_step_inputs& inputs) const {
  int64_t next = 0;  // of keep_rows
  for (int64_t i = 0; i < inputs.num_rows; ++i) {
    const int32_t* row = inputs.upload + i * NUM_UPLOAD_COLUMNS;
    const bool kept = next < inputs.num_keep && inputs.keep_rows[next] == i;
    const bool first_of_slot = i == 0 || row[SLOT] != row[SLOT - NUM_UPLOAD_COLUMNS];
    const bool was_kept = next > 0 && inputs.keep_rows[next - 1] == i - 1;
    const bool gap = first_of_slot ? gap_[static_cast<size_t>(row[SLOT])] && base_of(row, i) > 0
                                   : !was_kept;  // at 0 nothing precedes
    next += kept;
    if (!first_of_slot && was_kept && !kept)
      refuse("keep_rows",
             "row " + std::to_string(i - 1) + " of slot " + std::to_string(row[SLOT]) + " and not row " +
                 std::to_string(i),
             "the last rows of a slot in the step", "correct the list; no state was changed");
    if (row[FLAGS] & FLOOR && !kept)
      refuse_row(i, "FLAGS", row[FLAGS], "FLOOR (8) on kept rows only: the decoder's windows begin there");
    if (kept && gap && !(row[FLAGS] & FLOOR))
      refuse_row(i, "FLAGS", row[FLAGS], "FLOOR (8) on the first kept row behind rows that were not kept");
  }
}

// Kernels take these numbers as indices, unchecked.
void UploadCheck::check_written(const State& state, const void* data) const {
  std::optional<int64_t> last_position, pages_end;
  if (limits_.positions) last_position = *limits_.positions + 1;
  if (limits_.pages) pages_end = *limits_.pages + 1;  // the trash page marks what is not mapped
  const StateRange ranges[] = {{"slot_position", 0, last_position},    {"slot_token", -1, limits_.vocabulary},
                               {"token_ring", -1, limits_.vocabulary}, {"window_floor", 0, last_position},
                               {"replay_floor", 0, last_position},     {"page_table", 0, pages_end}};
  const auto range = std::ranges::find(ranges, state.name, &StateRange::name);
  if (range == std::end(ranges) || state.dtype != DSV41C_INT32) return;
  int64_t count = 1;
  for (int64_t size : state.sizes) count *= size;
  const auto* values = static_cast<const int32_t*>(data);
  for (int64_t i = 0; i < count; ++i)
    if (values[i] < range->low || (range->end && values[i] >= *range->end))
      refuse("state " + state.name + ", element " + std::to_string(i), std::to_string(values[i]),
             "at least " + std::to_string(range->low) + (range->end ? " and below " + std::to_string(*range->end) : ""),
             "correct the values; no state was changed");
}

void UploadCheck::check_row(const int32_t* row, int64_t index) const {
  check_range(index, "SLOT", row[SLOT], 0, limits_.slots);
  check_range(index, "TOKEN", row[TOKEN], limits_.slot_token ? -1 : 0, limits_.vocabulary);
  check_range(index, "PAGE", row[PAGE], -1, limits_.pages);
  if (row[FLAGS] & ~(START | IMAGE | (limits_.skips_rows ? FLOOR : 0) | (limits_.replays ? REPLAY | HIT : 0)))
    refuse_row(index, "FLAGS", row[FLAGS],
               std::string("START (1), IMAGE (2)") + (limits_.skips_rows ? ", FLOOR (8)" : "") +
                   (limits_.replays ? ", REPLAY (16), HIT (32)" : "") + " only; the executor adds pad rows itself");
  if (row[TOKEN] == -1) {
    const int32_t held = limits_.slot_token[row[SLOT]];
    if (held < 0 || (limits_.vocabulary && held >= *limits_.vocabulary))
      refuse_row(
          index, "TOKEN", -1,
          "a token id: slot " + std::to_string(row[SLOT]) + " holds no token yet (" + std::to_string(held) + ")");
  }
}

int64_t UploadCheck::check_group(const int32_t* upload, int64_t first, int64_t num_rows) {
  const int32_t* head = upload + first * NUM_UPLOAD_COLUMNS;
  check_row(head, first);
  const int32_t slot = head[SLOT];
  mark_slot(first, slot, "rows of one slot next to each other, but rows of other slots lie between");
  Group group{slot, (head[FLAGS] & START) != 0, base_of(head, first)};
  if (limits_.replays && !group.starts) {
    group.prefix = prefix_[static_cast<size_t>(slot)].length;
    group.is_placed = prefix_[static_cast<size_t>(slot)].is_placed;
  }
  int64_t i = first;
  for (; i < num_rows && upload[i * NUM_UPLOAD_COLUMNS + SLOT] == slot; ++i) {
    const int32_t* row = upload + i * NUM_UPLOAD_COLUMNS;
    check_row(row, i);
    if (row[OFFSET] != i - first)
      refuse_row(i, "OFFSET", row[OFFSET],
                 std::to_string(i - first) + ", its index among the rows of slot " + std::to_string(slot));
    if (row[FLAGS] & START && !(head[FLAGS] & START))
      refuse_row(i, "FLAGS", row[FLAGS], "START on the slot's first row or on none");
    const int64_t position = group.base + i - first;
    const int64_t end = limits_.positions.value_or(std::numeric_limits<int32_t>::max());
    if (position >= end)
      refuse_row(i, "OFFSET", row[OFFSET],
                 "positions below " + std::to_string(end) + "; slot " + std::to_string(slot) +
                     " would reach position " + std::to_string(position));
    check_replay(row, i, position, group);
    check_page(row, i, position, group);
  }
  return i;
}

void UploadCheck::mark_slot(int64_t row, int32_t slot, const char* needed) {
  if (seen_.empty()) return;
  uint64_t& seen = seen_[static_cast<size_t>(slot)];
  if (seen == step_) refuse_row(row, "SLOT", slot, needed);
  seen = step_;
}

// The position that the slot's state holds: the host may have written anything there.
int64_t UploadCheck::base_of(const int32_t* head, int64_t first) const {
  if (head[FLAGS] & START || !limits_.slot_position) return 0;
  const int32_t base = limits_.slot_position[head[SLOT]];
  if (base < 0 || (limits_.positions && base > *limits_.positions))
    refuse("upload row " + std::to_string(first) + ", field SLOT",
           "slot_position " + std::to_string(base) + " of slot " + std::to_string(head[SLOT]),
           "a position of at least 0" + (limits_.positions ? " and at most " + std::to_string(*limits_.positions) : ""),
           "restart the slot with START, or write its position; no state was changed");
  return base;
}

// Rows below the slot's prefix store nothing; the first one behind its placing says that the windows begin at it.
void UploadCheck::check_replay(const int32_t* row, int64_t index, int64_t position, const Group& group) const {
  const bool replayed = position < group.prefix, hit = group.is_placed && row[OFFSET] == 0;
  const auto where = [&] {
    return " at position " + std::to_string(position) + " of slot " + std::to_string(group.slot) +
           ", whose prefix has length " + std::to_string(group.prefix);
  };
  if (((row[FLAGS] & REPLAY) != 0) != replayed)
    refuse_row(index, "FLAGS", row[FLAGS], (replayed ? "REPLAY (16)" : "no REPLAY (16)") + where());
  if (((row[FLAGS] & HIT) != 0) != hit)
    refuse_row(index, "FLAGS", row[FLAGS],
               hit ? "HIT (32) on the first row behind a resume of slot " + std::to_string(group.slot)
                   : "HIT (32) on the first row behind a resume only");
  if (replayed && row[PAGE] >= 0) refuse_row(index, "PAGE", row[PAGE], "-1" + where() + ": its pages are mapped");
}

// A row stores into the page of its position, a replayed one reads there: the page must be mapped. In a step, one slot
// writes a page at one place and then nobody else touches it, or any number of them read it. From a step to the next
// the caller hands pages out, and a row that maps one takes it over; until then a page that a placed prefix fills is
// sealed.
void UploadCheck::check_page(const int32_t* row, int64_t index, int64_t position, Group& group) {
  if (uses_.empty()) return;
  const int64_t logical = position / *limits_.block_size;
  const bool writes = !(row[FLAGS] & REPLAY);
  if (row[PAGE] >= 0)
    group.page = row[PAGE];
  else if (logical != group.logical)
    group.page = page_before(index, position, group);
  else if (writes == group.writes)
    return;
  group.logical = logical;
  group.writes = writes;
  if (writes && row[PAGE] < 0 && !sealed_.empty() && sealed_[static_cast<size_t>(group.page)])
    refuse_row(index, "PAGE", row[PAGE],
               "a page of its own: page " + std::to_string(group.page) + " is filled by a prefix that slots share");
  Use& use = uses_[static_cast<size_t>(group.page)];
  const bool used = use.step == step_, elsewhere = used && (use.slot != group.slot || use.logical != logical);
  if (elsewhere && (writes || use.writes))
    refuse_row(index, "PAGE", row[PAGE],
               "a page of its own: page " + std::to_string(group.page) + " already holds positions of " +
                   (use.slot == SEVERAL ? "several slots" : "slot " + std::to_string(use.slot)) + " in this step");
  use = {step_, elsewhere ? SEVERAL : group.slot, logical, writes || (used && use.writes)};
}

// From earlier steps. A slot that starts afresh has none: what its table still shows belongs to a finished request.
int64_t UploadCheck::page_before(int64_t index, int64_t position, const Group& group) const {
  const auto unmapped = [&](const std::string& why) {
    refuse_row(index, "PAGE", -1,
               "a page: position " + std::to_string(position) + " of slot " + std::to_string(group.slot) + why);
  };
  if (group.starts) unmapped(" has none, because the slot starts");
  const int64_t logical = position / *limits_.block_size;
  const int64_t page = limits_.page_table[group.slot * *limits_.pages_per_slot + logical];
  if (page == *limits_.pages) unmapped(" has none mapped yet");
  if (page < 0 || page > *limits_.pages) unmapped(" is mapped to page " + std::to_string(page) + ", which is none");
  return page;
}

}  // namespace dsv41c
