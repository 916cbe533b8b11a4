// Scores of compressed entries for one row, a thread an entry. Macros: ACT, HEADS, WIDTH, RATIO, TOPK, POOL_PAGES,
// PAGE_ROWS, PAGES_PER_SLOT, PACKING.
#pragma once

#include "best_of.h"
#include "packed.h"
#include "row_view.h"
#include "shared_memory.h"

using act = stored<ACT>;

constexpr int THREADS = 256;
constexpr int UNIT = 8;  // heads that a thread sums at once
constexpr int PADDED_HEADS = (HEADS + UNIT - 1) / UNIT * UNIT;
constexpr int SCORER_BYTES = (WIDTH + 1) * PADDED_HEADS * 4;

using Pool = PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT>;
using BestEntries = BestOf<TOPK, THREADS, THREADS>;

struct Scorer {
  const stored<STATE>* keys;
  Pool pool;
  float *query, *weight;  // query [WIDTH][PADDED_HEADS]
  int slot;

  __device__ __forceinline__ Scorer(const act* q, const float* weights, const stored<STATE>* pool_keys,
                                    const int* page_table, const int* rows, float weight_scale, void* memory)
      : keys(pool_keys),
        pool{page_table},
        query(static_cast<float*>(memory)),
        weight(query + WIDTH * PADDED_HEADS),
        slot(row_at(rows, blockIdx.x)[SLOT]) {
    const int64_t i = blockIdx.x;
    for (int e = threadIdx.x; e < WIDTH * PADDED_HEADS; e += THREADS) {
      const int d = e / PADDED_HEADS, h = e % PADDED_HEADS;
      query[e] = h < HEADS ? to_float(q[(i * HEADS + h) * WIDTH + d]) : 0.0f;
    }
    for (int h = threadIdx.x; h < HEADS; h += THREADS) weight[h] = __fmul_rn(weights[i * HEADS + h], weight_scale);
    __syncthreads();
  }

  __device__ __forceinline__ float operator()(int j) const {
    const auto* key = keys + pool.entry(slot, j) * row_length(PACKING, WIDTH);
    float sum = 0.0f;
    for (int h0 = 0; h0 < HEADS; h0 += UNIT) {
      float match[UNIT] = {};
      for (int d = 0; d < WIDTH; ++d) {
        const float k = packed_value<PACKING, WIDTH, act>(key, d);
#pragma unroll
        for (int u = 0; u < UNIT; ++u) match[u] = fmaf(query[d * PADDED_HEADS + h0 + u], k, match[u]);
      }
#pragma unroll
      for (int u = 0; u < UNIT; ++u)
        if (h0 + u < HEADS) sum = fmaf(weight[h0 + u], match[u] < 0.0f ? 0.0f : match[u], sum);
    }
    return sum;
  }
};

// Entries that the row sees: the complete groups up to its position.
DEVICE int visible(Row row) { return min((row[POSITION] + 1) / RATIO, Pool::CAPACITY); }
