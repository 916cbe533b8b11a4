// C entries by which tests compare the sampler with Python's.
#include "engine/sampler.h"

#define DSV41C_EXPORT extern "C" __attribute__((visibility("default")))

DSV41C_EXPORT double dsv41c_uniform(uint64_t seed, uint64_t position) { return dsv41c::uniform(seed, position); }

DSV41C_EXPORT int32_t dsv41c_sample_token(const float* logits, int64_t count, double temperature, double top_p,
                                          int64_t top_k, uint64_t seed, uint64_t position, const int32_t* forbidden,
                                          int64_t num_forbidden) {
  return dsv41c::sample_token({logits, static_cast<size_t>(count)}, {temperature, top_p, top_k, seed}, position,
                              {forbidden, static_cast<size_t>(num_forbidden)});
}

// ids and values: room for `most`; the number of them.
DSV41C_EXPORT int64_t dsv41c_token_logprobs(const float* logits, int64_t count, int32_t chosen, int64_t most,
                                            float* chosen_logprob, int32_t* ids, float* values) {
  const dsv41c::TokenLogprobs found = dsv41c::token_logprobs({logits, static_cast<size_t>(count)}, chosen, most);
  *chosen_logprob = found.chosen;
  for (size_t i = 0; i < found.ids.size(); ++i) ids[i] = found.ids[i], values[i] = found.values[i];
  return static_cast<int64_t>(found.ids.size());
}
