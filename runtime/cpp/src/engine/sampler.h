// Tokens from float32 logits: a function of the logits, the settings, the seed and the position. The same numbers as
// dsv41c.runtime.sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsv41c {

using Logits = std::span<const float>;
using Ids = std::span<const int32_t>;

struct SampleSettings {
  double temperature = 0;  // 0: the largest logit
  double top_p = 1;
  int64_t top_k = 0;  // 0: all ids
  uint64_t seed = 0;
};

struct TokenLogprobs {
  float chosen = 0;
  std::vector<int32_t> ids;  // the likeliest, lower ids first among equals
  std::vector<float> values;
};

bool all_finite(Logits logits);

// Logits are finite. `forbidden` ids are never chosen; where no other is left the answer is 0. Lower ids win ties.
int32_t sample_token(Logits logits, const SampleSettings& settings, uint64_t position, Ids forbidden);

// Natural logarithms of the softmax of `logits`.
TokenLogprobs token_logprobs(Logits logits, int32_t chosen, int64_t count);

// The first number in [0, 1) of NumPy's Philox generator with key (seed, position).
double uniform(uint64_t seed, uint64_t position);

}  // namespace dsv41c
