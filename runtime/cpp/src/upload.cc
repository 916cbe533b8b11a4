// The rules of an upload: rows of a slot lie together, offsets ascend from 0, every id is in range.
#include "upload.h"

#include <string>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

[[noreturn]] void refuse(const std::string& subject, const std::string& found, const std::string& needed,
                         const std::string& action) {
  throw Error({.code = plan_format::E0801, .subject = subject, .found = found, .needed = needed, .action = action});
}

[[noreturn]] void refuse_row(int64_t row, const char* field, int64_t found, const std::string& needed) {
  refuse("upload row " + std::to_string(row) + ", field " + field, std::to_string(found), needed,
         "correct the row; no state was changed");
}

void check_range(int64_t row, const char* field, int64_t value, int64_t low, std::optional<int64_t> end) {
  if (value >= low && (!end || value < *end)) return;
  refuse_row(row, field, value, "at least " + std::to_string(low) + (end ? " and below " + std::to_string(*end) : ""));
}

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

// The decoder takes the positions of a slot's kept rows from a base and a count, so they must be neighbours.
void check_neighbours(const int32_t* keep, int64_t count, const int32_t* upload) {
  for (int64_t i = 1; i < count; ++i) {
    if (keep[i] == keep[i - 1] + 1) continue;
    const int32_t slot = upload[keep[i] * NUM_UPLOAD_COLUMNS + SLOT];
    if (upload[keep[i - 1] * NUM_UPLOAD_COLUMNS + SLOT] == slot)
      refuse_entry("keep_rows", i,
                   "rows " + std::to_string(keep[i - 1]) + " and " + std::to_string(keep[i]) + " of slot " +
                       std::to_string(slot),
                   "kept rows of one slot without a gap");
  }
}

}  // namespace

void UploadCheck::check(const dsv41c_step_inputs& inputs) {
  if (inputs.num_rows < 1)
    refuse("upload", std::to_string(inputs.num_rows) + " rows", "at least 1 row", "skip the step");
  ++step_;
  for (int64_t first = 0; first < inputs.num_rows;) first = check_group(inputs.upload, first, inputs.num_rows);
  check_ascending("keep_rows", inputs.keep_rows, inputs.num_keep, inputs.num_rows);
  check_neighbours(inputs.keep_rows, inputs.num_keep, inputs.upload);
  check_ascending("logit_rows", inputs.logit_rows, inputs.num_logit_rows, inputs.num_keep);
}

void UploadCheck::check_row(const int32_t* row, int64_t index) const {
  check_range(index, "SLOT", row[SLOT], 0, limits_.slots);
  check_range(index, "TOKEN", row[TOKEN], limits_.slot_token ? -1 : 0, limits_.vocabulary);
  check_range(index, "PAGE", row[PAGE], -1, limits_.pages);
  if (row[FLAGS] & ~(START | IMAGE))
    refuse_row(index, "FLAGS", row[FLAGS], "START (1) and IMAGE (2) only; the executor adds pad rows itself");
  if (row[TOKEN] == -1 && limits_.vocabulary) {
    const int32_t held = limits_.slot_token[row[SLOT]];
    if (held < 0 || held >= *limits_.vocabulary)
      refuse_row(
          index, "TOKEN", -1,
          "a token id: slot " + std::to_string(row[SLOT]) + " holds no token yet (" + std::to_string(held) + ")");
  }
}

int64_t UploadCheck::check_group(const int32_t* upload, int64_t first, int64_t num_rows) {
  const int32_t* head = upload + first * NUM_UPLOAD_COLUMNS;
  check_row(head, first);
  const int32_t slot = head[SLOT];
  if (!seen_.empty()) {
    uint64_t& seen = seen_[static_cast<size_t>(slot)];
    if (seen == step_)
      refuse_row(first, "SLOT", slot, "rows of one slot next to each other, but rows of other slots lie between");
    seen = step_;
  }
  const int64_t base = head[FLAGS] & START || !limits_.slot_position ? 0 : limits_.slot_position[slot];
  int64_t mapped = -1;  // logical page that this step has mapped last
  int64_t i = first;
  for (; i < num_rows && upload[i * NUM_UPLOAD_COLUMNS + SLOT] == slot; ++i) {
    const int32_t* row = upload + i * NUM_UPLOAD_COLUMNS;
    check_row(row, i);
    if (row[OFFSET] != i - first)
      refuse_row(i, "OFFSET", row[OFFSET],
                 std::to_string(i - first) + ", its index among the rows of slot " + std::to_string(slot));
    if (row[FLAGS] & START && !(head[FLAGS] & START))
      refuse_row(i, "FLAGS", row[FLAGS], "START on the slot's first row or on none");
    const int64_t position = base + i - first;
    if (limits_.positions && position >= *limits_.positions)
      refuse_row(i, "OFFSET", row[OFFSET],
                 "positions below " + std::to_string(*limits_.positions) + "; slot " + std::to_string(slot) +
                     " would reach position " + std::to_string(position));
    check_page(row, i, position, &mapped);
  }
  return i;
}

void UploadCheck::check_page(const int32_t* row, int64_t index, int64_t position, int64_t* mapped) const {
  if (!limits_.page_table || !limits_.block_size) return;
  const int64_t logical = position / *limits_.block_size;
  if (row[PAGE] >= 0) *mapped = logical;
  if (*mapped == logical) return;
  if (limits_.page_table[row[SLOT] * *limits_.pages_per_slot + logical] == *limits_.pages)
    refuse_row(index, "PAGE", row[PAGE],
               "a page: position " + std::to_string(position) + " of slot " + std::to_string(row[SLOT]) +
                   " has none mapped yet");
}

}  // namespace dsv41c
