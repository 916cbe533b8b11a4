// A sequence of tokens in a slot, and the rows of one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dsv41c/executor.h"
#include "engine/limits.h"
#include "engine/pool.h"

namespace dsv41c {

// `position` counts the rows that the slot's state already holds; tokens from there on are to be run.
struct Sequence {
  std::vector<int32_t> tokens;  // prompt and answer
  int64_t prompt_length = 0;    // also the anchor of the decoder's bounded suffix, whatever is computed again
  int64_t position = 0;
  int32_t slot = -1;             // -1: none
  std::vector<int32_t> pages;    // by logical page
  bool token_on_device = false;  // the last token is the one that the slot's last step chose

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t rows_left() const { return length() - position; }
  bool decodes() const { return length() > prompt_length && rows_left() == 1; }
};

// How many of the next `count` rows the decoder does not run on: the first ones.
int64_t num_left_out(const Sequence& sequence, int64_t count, const EngineLimits& limits);

// The largest count of next rows, at most `rows`, of which the decoder keeps at most `kept_rows`.
int64_t rows_within(const Sequence& sequence, int64_t rows, int64_t kept_rows, const EngineLimits& limits);

void take_pages(Sequence& sequence, int64_t rows_held, Pool& pages, const EngineLimits& limits);  // until they suffice
void give_back(Sequence& sequence, Pool& slots, Pool& pages);  // slot and pages; it starts anew when it has them again

// The upload of a step under construction.
class StepRows {
 public:
  explicit StepRows(const EngineLimits& limits) : limits_(limits) {}

  void clear();
  // The next `count` rows of a sequence. Logits are wanted of `logit_rows`, ascending indices among them, none of which
  // is left out; false when one is.
  bool add(const Sequence& sequence, int64_t count, std::span<const int32_t> logit_rows);
  dsv41c_step_inputs inputs() const;
  int64_t num_rows() const { return static_cast<int64_t>(upload_.size()) / 5; }
  int64_t num_logit_rows() const { return static_cast<int64_t>(logit_.size()); }

 private:
  const EngineLimits& limits_;
  std::vector<int32_t> upload_, keep_, logit_;
};

}  // namespace dsv41c
