// Attention of one row's heads over a list of keys: one vector is key and value for all heads, a warp a head.
// Macros: ACT, HEADS, WIDTH (of a head), RING, WARPS (heads of one block), STATE, PACKING (of the ring).
#pragma once

#include "packed.h"
#include "row_view.h"

using act = stored<ACT>;

constexpr int THREADS = WARPS * 32;
constexpr int PER_LANE = (WIDTH + 31) / 32;
constexpr int TILE = WIDTH >= 4096 ? 1 : WIDTH > 256 ? 4096 / WIDTH : 16;  // keys staged at once

// Where a key lies, and how; no place for one that takes no part.
struct Key {
  const void* at;
  int packing;
};

// The window's keys: positions first..last ascending, the ring before BASE, this step's rows from BASE on.
struct WindowKeys {
  const act* chunk;
  const stored<STATE>* ring;
  Row row;
  int first, count;
  __device__ __forceinline__ WindowKeys(const act* window_kv, const stored<STATE>* window, Row r, int from, int last)
      : chunk(window_kv), ring(window), row(r), first(max(max(from, r[FLOOR]), 0)), count(max(last + 1 - first, 0)) {}
  __device__ __forceinline__ Key operator()(int k) const {
    const int u = first + k;
    if (u >= row[BASE]) return {chunk + static_cast<int64_t>(row[FIRST_ROW] + u - row[BASE]) * WIDTH, PLAIN};
    return {ring + (static_cast<int64_t>(row[SLOT]) * RING + u % RING) * row_length(PACKING, WIDTH), PACKING};
  }
};

// What one head has summed so far: the maximum starts at the sink, which joins the denominator only.
struct Head {
  float q[PER_LANE], sum[PER_LANE], top, total;

  __device__ __forceinline__ Head(const act* from, float sink) : top(sink), total(0.0f) {
#pragma unroll
    for (int p = 0; p < PER_LANE; ++p) {
      const int d = p * 32 + threadIdx.x % 32;
      q[p] = d < WIDTH ? to_float(from[d]) : 0.0f;
      sum[p] = 0.0f;
    }
  }
  __device__ __forceinline__ void add(const float* key, float scale) {
    float k[PER_LANE], match = 0.0f;
#pragma unroll
    for (int p = 0; p < PER_LANE; ++p) {
      const int d = p * 32 + threadIdx.x % 32;
      k[p] = d < WIDTH ? key[d] : 0.0f;
      match = fmaf(q[p], k[p], match);
    }
    const float score = warp_sum(match) * scale;
    if (score > top) {
      const float shrink = expf(top - score);
      top = score;
      total *= shrink;
#pragma unroll
      for (int p = 0; p < PER_LANE; ++p) sum[p] *= shrink;
    }
    const float weight = expf(score - top);
    total += weight;
#pragma unroll
    for (int p = 0; p < PER_LANE; ++p) sum[p] = fmaf(weight, k[p], sum[p]);
  }
};

DEVICE float number_of(const Key& key, int d) {
  if (PACKING == PLAIN || key.packing == PLAIN) return packed_value<PLAIN, WIDTH, act>(key.at, d);
  return key.packing == FP8 ? packed_value<FP8, WIDTH, act>(key.at, d) : packed_value<FP4_KV, WIDTH, act>(key.at, d);
}

// keys(k) gives key k < count. No keys give zeros.
template <class Keys>
DEVICE void attend(const act* q, const float* sink, act* out, int count, float scale, Keys keys) {
  __shared__ float staged[TILE * WIDTH];
  __shared__ Key place[TILE];
  const int t = threadIdx.x, h = blockIdx.y * WARPS + t / 32;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * HEADS + min(h, HEADS - 1)) * WIDTH;
  const float own_sink = sink[min(h, HEADS - 1)];
  Head head(q + at, own_sink);
  bool any = false;
  for (int first = 0; first < count; first += TILE) {
    __syncthreads();  // the tile before has been read
    if (t < TILE) place[t] = first + t < count ? keys(first + t) : Key{nullptr, PLAIN};
    __syncthreads();
    for (int e = t; e < TILE * WIDTH; e += THREADS)
      if (place[e / WIDTH].at) staged[e] = number_of(place[e / WIDTH], e % WIDTH);
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < TILE; ++k) {
      if (!place[k].at) continue;
      any = true;
      head.add(staged + k * WIDTH, scale);
    }
  }
  if (h >= HEADS) return;
  const float total = head.total + expf(own_sink - head.top);
#pragma unroll
  for (int p = 0; p < PER_LANE; ++p) {
    const int d = p * 32 + t % 32;
    if (d < WIDTH) out[at + d] = from_float<act>(any ? head.sum[p] / total : 0.0f);
  }
}
