// Softmax, top-k, top-p and draws in float64, in the order of additions of dsv41c.runtime.sampling.
#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace dsv41c {
namespace {

constexpr double NOTHING = -std::numeric_limits<double>::infinity();

// Philox4x64-10 of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
std::array<uint64_t, 4> philox(std::array<uint64_t, 4> counter, std::array<uint64_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const auto left = static_cast<unsigned __int128>(0xD2E7470EE14C6C93) * counter[0];
    const auto right = static_cast<unsigned __int128>(0xCA5A826395121157) * counter[2];
    counter = {static_cast<uint64_t>(right >> 64) ^ counter[1] ^ key[0], static_cast<uint64_t>(right),
               static_cast<uint64_t>(left >> 64) ^ counter[3] ^ key[1], static_cast<uint64_t>(left)};
    key[0] += 0x9E3779B97F4A7C15;
    key[1] += 0xBB67AE8584CAA73B;
  }
  return counter;
}

std::vector<double> scores_of(Logits logits, Ids forbidden) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (int32_t id : forbidden) scores[static_cast<size_t>(id)] = NOTHING;
  return scores;
}

int32_t likeliest(const std::vector<double>& scores) {
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

std::vector<int32_t> all_ids(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The first `count` ids by falling value; lower ids first among equals.
template <class Value>
void sort_likeliest(std::vector<int32_t>& ids, std::span<const Value> values, size_t count) {
  const auto before = [values](int32_t a, int32_t b) {
    const Value left = values[static_cast<size_t>(a)], right = values[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  };
  std::ranges::partial_sort(ids, ids.begin() + static_cast<ptrdiff_t>(count), before);
  ids.resize(count);
}

std::vector<double> running_sums(const std::vector<double>& weights, const std::vector<int32_t>& ids) {
  std::vector<double> sums;
  sums.reserve(ids.size());
  double sum = 0;
  for (int32_t id : ids) sums.push_back(sum += weights[static_cast<size_t>(id)]);
  return sums;
}

int32_t draw(const std::vector<double>& weights, const SampleSettings& settings, uint64_t position) {
  std::vector<int32_t> ids = all_ids(weights.size());
  const size_t most = settings.top_k > 0 ? std::min(static_cast<size_t>(settings.top_k), ids.size()) : ids.size();
  if (most < ids.size() || settings.top_p < 1) sort_likeliest<double>(ids, weights, most);
  std::vector<double> running = running_sums(weights, ids);
  if (settings.top_p < 1) {
    const auto end = std::ranges::lower_bound(running, settings.top_p * running.back());
    running.resize(static_cast<size_t>(end - running.begin()) + 1);
  }
  const auto drawn = std::ranges::upper_bound(running, uniform(settings.seed, position) * running.back());
  // The product may round up to the total; the last id of non-zero weight is where the total is reached.
  const auto last = std::ranges::lower_bound(running, running.back());
  return ids[static_cast<size_t>(std::min(drawn, last) - running.begin())];
}

}  // namespace

double uniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(philox({1, 0, 0, 0}, {seed, position})[0] >> 11) * 0x1p-53;
}

bool all_finite(Logits logits) {
  uint32_t found = 0;  // without a branch, so that it is vector code
  for (float logit : logits) found |= (std::bit_cast<uint32_t>(logit) & 0x7F800000u) == 0x7F800000u;
  return found == 0;
}

int32_t sample_token(Logits logits, const SampleSettings& settings, uint64_t position, Ids forbidden) {
  std::vector<double> weights = scores_of(logits, forbidden);
  const double best = *std::ranges::max_element(weights);
  if (best == NOTHING) return 0;
  if (settings.temperature == 0) return likeliest(weights);
  for (double& weight : weights) weight = std::exp((weight - best) / settings.temperature);
  return draw(weights, settings, position);
}

TokenLogprobs token_logprobs(Logits logits, int32_t chosen, int64_t count) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - best);
  const double total = std::log(sum);
  const auto logprob = [&](int32_t id) { return static_cast<float>(logits[static_cast<size_t>(id)] - best - total); };
  TokenLogprobs result{.chosen = logprob(chosen), .ids = all_ids(logits.size()), .values = {}};
  sort_likeliest<float>(result.ids, logits, std::min(static_cast<size_t>(count), logits.size()));
  for (int32_t id : result.ids) result.values.push_back(logprob(id));
  return result;
}

}  // namespace dsv41c
