// What a caller asks of a request, and the checks before it is queued.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/limits.h"

namespace dsv41c {

inline constexpr int64_t MAX_LOGPROBS = 20;
inline constexpr int64_t MAX_STOP_IDS = 64;
inline constexpr int64_t MAX_ID_BYTES = 256;

struct GenerateParams {
  std::vector<int32_t> prompt;
  int64_t max_new_tokens = 16;
  int64_t min_new_tokens = 0;
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  int64_t top_k = 0;  // 0: all ids
  int64_t num_logprobs = 0;
  uint64_t seed = 0;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  uint32_t priority = 0;     // lower ones first
  uint64_t deadline_ms = 0;  // 0: none
  std::string id;

  bool is_greedy() const { return temperature == 0; }
  std::string name() const { return id.empty() ? "request" : "request " + id; }
};

// Rows that the request's state holds when it ends at its own limits.
int64_t most_rows_held(const GenerateParams& params, const EngineLimits& limits);

// E0902 for the prompt, E0901 for another field, E1001 when all pages of the engine could not hold the request.
void check_params(const GenerateParams& params, const EngineLimits& limits);

}  // namespace dsv41c
