// Behind mega_attention: the row's key is committed to its ring, which has been read by then, and where rows have
// several parts these become the result, summed in their order. A block takes the key or one head of one row, a thread
// four numbers of it. Macros: HEADS, RING, ROPE, MAX_POSITIONS, CAST, MOST_SPLITS.
#include "attention_result.h"
#include "packed.h"

DEVICE void commit(const bf16* window_kv, const Row& row, uint8_t* window) {
  const bool stores = !row.pad() && row.among_last(RING, blockIdx.x);
  const int64_t at = static_cast<int64_t>(row[SLOT]) * RING + max(row[POSITION], 0) % RING;
  for (int d = threadIdx.x; d < WIDTH; d += 128)
    store_number<FP8, WIDTH>(window + at * row_length(FP8, WIDTH), d,
                             window_kv[static_cast<int64_t>(blockIdx.x) * WIDTH + d], stores);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    mega_attention_finish(const bf16* window_kv, uint8_t* window, const float* sink, const int* rows,
                          const float* table, bf16* out, const float* partial, const float* parts, int splits) {
  const Row row = row_at(rows, blockIdx.x);
  if (blockIdx.y == 0) return commit(window_kv, row, window);
  const int head = blockIdx.y - 1, d = threadIdx.x * 4;
  float top[MOST_SPLITS], total[MOST_SPLITS], largest = -1e30f;
  float4 sums[MOST_SPLITS];
#pragma unroll
  for (int n = 0; n < MOST_SPLITS; ++n) {  // those that do not exist are read again and count nothing
    const int64_t at = (static_cast<int64_t>(min(n, splits - 1)) * gridDim.x + blockIdx.x) * 64 + head;
    top[n] = parts[at * 2], total[n] = parts[at * 2 + 1];
    sums[n] = *reinterpret_cast<const float4*>(partial + at * WIDTH + d);
    largest = fmaxf(largest, top[n]);
  }
  float all = power_of_two(sink[head] * LOG2E - largest), v[4] = {};
#pragma unroll
  for (int n = 0; n < MOST_SPLITS; ++n) {
    const float weight = n < splits ? power_of_two(top[n] - largest) : 0.0f;
    all += n < splits ? weight * total[n] : 0.0f;
    if (n >= splits) continue;
    v[0] += weight * sums[n].x, v[1] += weight * sums[n].y, v[2] += weight * sums[n].z, v[3] += weight * sums[n].w;
  }
  const float inverse = 1.0f / KEY_SCALE / all;
  for (int i = 0; i < 4; ++i) v[i] = rounded(v[i] * inverse);
  if (d >= KEPT) {
    const Turn turn(table, row);
    turn.turn<true>(v[0], v[1], d);
    turn.turn<true>(v[2], v[3], d + 2);
  }
  if constexpr (CAST) {
    const float own = max_or_nan(max_or_nan(fabsf(v[0]), fabsf(v[1])), max_or_nan(fabsf(v[2]), fabsf(v[3])));
    const Cast cast(lanes_max_or_nan<8>(own));
    for (int i = 0; i < 4; ++i) v[i] = cast(v[i]);
  }
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * HEADS + head) * WIDTH + d;
  *reinterpret_cast<uint2*>(out + at) = uint2{pair_of(v[0], v[1]), pair_of(v[2], v[3])};
}
