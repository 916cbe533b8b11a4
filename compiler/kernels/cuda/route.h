// The choice of experts from the scores of a row. Macros: EXPERTS, TOPK.
#pragma once
#include "reduce.h"
#include "row_view.h"

constexpr int NONE = 0x7fffffff;

DEVICE float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// Id of the best key that is left, the lowest id among equals; every lane of the warp returns it.
DEVICE int best_left(const float* key, const bool* taken) {
  float value = 0.0f;
  int id = NONE;
  for (int e = threadIdx.x % 32; e < EXPERTS; e += 32)
    if (!taken[e] && (id == NONE || key[e] > value)) value = key[e], id = e;
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(ALL_LANES, value, distance);
    const int other_id = __shfl_xor_sync(ALL_LANES, id, distance);
    if (other_id != NONE && (id == NONE || other > value || (other == value && other_id < id)))
      value = other, id = other_id;
  }
  return id;
}

// The score of an expert from the gate's product.
DEVICE float score_from(float product) { return sqrtf(softplus(product)); }

// Writes the score and the key of expert e; NaN is the worst key, so that every row has valid ids.
DEVICE void enter(float* score, float* key, bool* taken, int e, float s, float bias) {
  const float k = s + bias;
  score[e] = s, key[e] = k == k ? k : -__uint_as_float(0x7f800000u), taken[e] = false;
}

// Row i's choice, by one warp: the best keys one by one.
DEVICE void choose(const float* score, const float* key, bool* taken, int* chosen, int64_t i, int* expert,
                   float* expert_weight, float routed_scale) {
  const int t = threadIdx.x;
  for (int n = 0; n < TOPK; ++n) {
    const int id = best_left(key, taken);
    __syncwarp();
    if (t == 0) chosen[n] = id, taken[id] = true;
    __syncwarp();
  }
  float sum = 0.0f;
  for (int n = 0; n < TOPK; ++n) sum += score[chosen[n]];
  for (int n = t; n < TOPK; n += 32) {
    expert[i * TOPK + n] = chosen[n];
    expert_weight[i * TOPK + n] = routed_scale * score[chosen[n]] / (sum + 1e-20f);
  }
}
