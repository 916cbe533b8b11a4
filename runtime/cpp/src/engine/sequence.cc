// Columns SLOT, OFFSET, TOKEN, FLAGS and PAGE from a sequence's tokens and pages.
#include "engine/sequence.h"

#include "upload.h"

namespace dsv41c {
namespace {

constexpr int32_t ON_DEVICE = -1, NO_PAGE = -1;

}  // namespace

int64_t num_left_out(const Sequence& sequence, int64_t count, const EngineLimits& limits) {
  if (limits.runs_all_rows) return 0;
  return std::clamp<int64_t>(limits.first_kept(sequence.prompt_length) - sequence.position, 0, count);
}

int64_t rows_within(const Sequence& sequence, int64_t rows, int64_t kept_rows, const EngineLimits& limits) {
  const int64_t count = std::min(sequence.rows_left(), rows);
  return std::min(count, num_left_out(sequence, count, limits) + kept_rows);
}

void take_pages(Sequence& sequence, int64_t rows_held, Pool& pages, const EngineLimits& limits) {
  const int64_t needed = limits.pages_for(rows_held);
  while (static_cast<int64_t>(sequence.pages.size()) < needed) sequence.pages.push_back(pages.take());
}

void give_back(Sequence& sequence, Pool& slots, Pool& pages) {
  for (int32_t page : sequence.pages) pages.give_back(page);
  sequence.pages.clear();
  if (sequence.slot >= 0) slots.give_back(sequence.slot);
  sequence.slot = -1;
  sequence.position = 0;
  sequence.token_on_device = false;
}

void StepRows::clear() {
  upload_.clear();
  keep_.clear();
  logit_.clear();
}

bool StepRows::add(const Sequence& sequence, int64_t count, std::span<const int32_t> logit_rows) {
  const int64_t left_out = num_left_out(sequence, count, limits_);
  const int64_t floor = limits_.first_kept(sequence.prompt_length);
  const auto first_row = static_cast<int32_t>(num_rows());
  const auto first_kept = static_cast<int64_t>(keep_.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = sequence.position + i;
    const bool on_device = sequence.token_on_device && position + 1 == sequence.length();
    const bool opens_page = position % limits_.block_size == 0;
    upload_.insert(
        upload_.end(),
        {sequence.slot, static_cast<int32_t>(i), on_device ? ON_DEVICE : sequence.tokens[static_cast<size_t>(position)],
         (sequence.position == 0 ? START : 0) | (position == floor && position > 0 ? FLOOR : 0),
         opens_page ? sequence.pages[static_cast<size_t>(position / limits_.block_size)] : NO_PAGE});
    if (i >= left_out) keep_.push_back(first_row + static_cast<int32_t>(i));
  }
  for (int32_t row : logit_rows) {
    if (row < left_out) return false;
    logit_.push_back(static_cast<int32_t>(first_kept + row - left_out));
  }
  return true;
}

dsv41c_step_inputs StepRows::inputs() const {
  return {upload_.data(),
          num_rows(),
          keep_.data(),
          static_cast<int64_t>(keep_.size()),
          logit_.data(),
          static_cast<int64_t>(logit_.size()),
          0,
          0};
}

}  // namespace dsv41c
