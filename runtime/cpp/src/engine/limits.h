// What an artifact and an engine's options put on requests. Lengths in tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plan.h"

namespace dsv41c {

struct EngineLimits {
  int64_t slots = 0;       // requests that run at the same time
  int64_t rows = 0;        // of a step
  int64_t kept_rows = 0;   // of a step: those that the decoder runs on
  int64_t logit_rows = 0;  // of a step
  int64_t context = 0;     // prompt and answer of a request
  int64_t block_size = 0;  // of a page
  int64_t pages = 0;
  int64_t vocabulary = 0;
  int64_t queue = 1024;       // requests that wait for a slot
  int64_t keep_tokens = 0;    // of a prompt's last rows, which the decoder keeps; 0: all
  bool runs_all_rows = true;  // the decoder runs on the others too, and does not see them
  std::vector<int32_t> eos_ids;

  // The first position whose row the decoder keeps; anchored at the prompt's end, whatever its chunks.
  int64_t first_kept(int64_t prompt_length) const {
    return keep_tokens > 0 ? std::max<int64_t>(prompt_length - keep_tokens, 0) : 0;
  }
  int64_t pages_for(int64_t rows_held) const { return (rows_held + block_size - 1) / block_size; }
};

// What a caller may lower; 0 leaves a limit as it is.
struct LowerLimits {
  int64_t slots = 0, rows = 0, context = 0, pages = 0, queue = 0;
};

// Of the artifact in `directory`, whose plan this is: end-of-sequence ids are in its generation_config.json, or else in
// config.json. E0703 when the plan has no slots or pages, or a file has another form.
EngineLimits engine_limits(const Plan& plan, const std::string& directory);

// E0901 when one of `lower` is above the limit, or the rows of a step are fewer than the slots.
EngineLimits lowered(EngineLimits limits, const LowerLimits& lower);

std::string model_type(const std::string& directory);  // of config.json; empty when it has none

}  // namespace dsv41c
