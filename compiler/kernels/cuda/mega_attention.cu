// mega_sparse_attention over packed state: rotary of the query, attention over window and selected entries, inverse
// rotary and MXFP8 rounding. A block takes one row, or one of `splits` parts of its keys; of parts it leaves sums in
// `partial` [splits, rows, 64, WIDTH] and largest score and total in `parts` [splits, rows, 64, 2].
//
// Four warpgroups: scores and the left half of the sum, its right half, and two that unpack keys ahead of both. Macros:
// HEADS (at most 64), ROPE, MAX_POSITIONS, WINDOW, RING, SELECTED, POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT, CAST.
#include "attention_keys.h"
#include "shared_memory.h"

constexpr int KEYS = 64;  // of a tile
constexpr int WINDOW_TILES = WINDOW / KEYS, ALL_TILES = WINDOW_TILES + (SELECTED + KEYS - 1) / KEYS;
static_assert(WINDOW % KEYS == 0 && HEADS <= 64 && ROPE == 64);
constexpr float NO_SCORE = -1e30f;

// Barriers by id; those of a stage have two. 0 is the block's own.
enum BarrierId { QUERY = 1, FULL = 2, EMPTY = 4, WEIGHTS = 6, WEIGHTS_READ = 8, TOTALS = 10, OWN = 11, PLACES = 13 };

// One pointer: what lies where is known when the kernel is built, and registers are short.
struct Shared {
  uint8_t* base;  // query, 8 tiles; 2 stages of 8 tiles of keys; 2 stages of a tile of weights; what follows here
  __device__ __forceinline__ uint8_t* query() const { return base; }
  __device__ __forceinline__ uint8_t* keys(int stage) const { return base + (8 + 8 * stage) * TILE; }
  __device__ __forceinline__ uint8_t* weights(int stage) const { return base + (24 + stage) * TILE; }
  __device__ __forceinline__ int* takes_part(int stage) const { return words() + stage * KEYS; }
  __device__ __forceinline__ float* shrink(int stage) const { return numbers() + (2 + stage) * KEYS; }
  __device__ __forceinline__ float* inverse() const { return numbers() + 4 * KEYS; }
  __device__ __forceinline__ int* places() const { return words() + 5 * KEYS; }  // [ALL_TILES][KEYS]

 private:
  __device__ __forceinline__ int* words() const { return reinterpret_cast<int*>(base + 26 * TILE); }
  __device__ __forceinline__ float* numbers() const { return reinterpret_cast<float*>(base + 26 * TILE); }
};

// Turned query into shared memory, by 256 threads. Heads that do not exist are zeros.
DEVICE void read_query(const bf16* q, const Turn& turn, const Shared& s) {
#pragma unroll 4
  for (int e = threadIdx.x; e < 64 * WIDTH / 8; e += 256) {
    const int head = e / (WIDTH / 8), d = e % (WIDTH / 8) * 8;
    uint4 v{};
    if (head < HEADS)
      v = *reinterpret_cast<const uint4*>(q + (static_cast<int64_t>(blockIdx.x) * HEADS + head) * WIDTH + d);
    if (d >= KEPT) {
      uint32_t* pairs = &v.x;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        float a = __uint_as_float(pairs[p] << 16), b = __uint_as_float(pairs[p] & 0xffff0000u);
        turn.turn<false>(a, b, d + 2 * p);
        pairs[p] = pair_of(a, b);
      }
    }
    *reinterpret_cast<uint4*>(s.query() + d / 64 * TILE + chunk_at(head, d % 64 / 8)) = v;
  }
  publish();
  barrier_wait(QUERY, 256);
}

// Unpacks keys, a tile at a time, into the stages in turn.
struct Unpacker {
  const Sources& sources;
  const Shared& s;
  int r, quarter;  // key of a tile, quarter of a key

  __device__ __forceinline__ int key(int n) const { return s.places()[n * KEYS + r]; }
  __device__ __forceinline__ uint8_t* begin(int n) const {
    if (n >= 2) barrier_wait(EMPTY + n % 2, 512);
    return s.keys(n % 2);
  }
  __device__ __forceinline__ void end(int n, int key) const {
    if (quarter == 0) s.takes_part(n % 2)[r] = key != NO_KEY;
    publish();
    barrier_arrive(FULL + n % 2, 384);
  }
  __device__ __forceinline__ void window(int n) const {
    const int own = key(n);
    RingCodes codes;
    if (own > THIS_STEP) codes.read(sources.in_ring(own), quarter);
    uint8_t* to = begin(n);
    if (own > THIS_STEP)
      unpack(codes, own != NO_KEY, quarter, r, to);
    else
      scale_row(sources.in_step(own), quarter, r, to);
    end(n, own);
  }
  __device__ __forceinline__ void read(EntryCodes& codes, int n) const { codes.read(sources.in_pool(key(n)), quarter); }
  __device__ __forceinline__ void entries(const EntryCodes& codes, int n) const {
    const int own = key(n);
    unpack(codes, own != NO_KEY, quarter, r, begin(n));
    end(n, own);
  }
};

DEVICE void unpack_keys(const Sources& sources, int first, int count, const Shared& s) {
  const int t = threadIdx.x - 256;
  for (int k = t; k < count * KEYS; k += 256) s.places()[k] = sources.key(first * KEYS + k);
  barrier_wait(PLACES, 256);  // from here on no key waits for a table
  const Unpacker tiles{sources, s, t / 32 * 8 + t % 8, t % 32 / 8};
  int n = 0;
  for (; n < min(WINDOW_TILES - first, count); ++n) tiles.window(n);
  EntryCodes even, odd;  // two tiles are on their way at any time
  if (n < count) tiles.read(even, n);
  if (n + 1 < count) tiles.read(odd, n + 1);
  for (; n < count; n += 2) {
    tiles.entries(even, n);
    if (n + 2 < count) tiles.read(even, n + 2);
    if (n + 1 == count) break;
    tiles.entries(odd, n + 1);
    if (n + 3 < count) tiles.read(odd, n + 3);
  }
}

DEVICE float of_four(float v, bool largest) {
  const float a = __shfl_xor_sync(ALL_LANES, v, 1);
  v = largest ? fmaxf(v, a) : v + a;
  const float b = __shfl_xor_sync(ALL_LANES, v, 2);
  return largest ? fmaxf(v, b) : v + b;
}

DEVICE void shrink_sums(float (&sums)[64], float low, float high) {
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] *= i % 4 < 2 ? low : high;
}

// Scores, weights and the left half. top, total: of rows own_row() and own_row() + 8.
DEVICE void score_keys(int count, float factor, const Shared& s, float (&left)[64], float (&right)[64], float (&top)[2],
                       float (&total)[2]) {
  const int row = own_row();
  for (int n = 0; n < count; ++n) {
    const int stage = n % 2;
    const uint8_t* keys = s.keys(stage);
    float score[32], largest[2] = {top[0], top[1]}, shrink[2];
    barrier_wait(FULL + stage, 384);
    product_of_rows<8>(score, s.query(), keys);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const bool counts = s.takes_part(stage)[i / 4 * 8 + own_column() + i % 2];
      score[i] = counts ? score[i] * factor : -INFINITY;
      largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], score[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = of_four(largest[h], true);
      shrink[h] = power_of_two(top[h] - largest[h]);
      top[h] = largest[h], total[h] *= shrink[h];
    }
    if (n >= 2) barrier_wait(WEIGHTS_READ + stage, 256);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int h = i % 4 / 2;
      score[i] = power_of_two(score[i] - top[h]), score[i + 1] = power_of_two(score[i + 1] - top[h]);
      total[h] += score[i] + score[i + 1];
      *reinterpret_cast<uint32_t*>(s.weights(stage) + chunk_at(row + 8 * h, i / 4) + own_column() * 2) =
          pair_of(score[i], score[i + 1]);
    }
    if (threadIdx.x % 4 == 0) s.shrink(stage)[row] = shrink[0], s.shrink(stage)[row + 8] = shrink[1];
    publish();
    barrier_wait(OWN, 128);
    barrier_arrive(WEIGHTS + stage, 256);
    shrink_sums(left, shrink[0], shrink[1]);
    shrink_sums(right, shrink[0], shrink[1]);
    add_products(left, right, s.weights(stage), keys);
    if (n + 2 < count) barrier_arrive(EMPTY + stage, 512);
  }
  total[0] = of_four(total[0], false), total[1] = of_four(total[1], false);
}

DEVICE void add_right_half(int count, const Shared& s, float (&left)[64], float (&right)[64]) {
  const int row = own_row();
  for (int n = 0; n < count; ++n) {
    const int stage = n % 2;
    barrier_wait(WEIGHTS + stage, 256);
    const float low = s.shrink(stage)[row], high = s.shrink(stage)[row + 8];
    shrink_sums(left, low, high);
    shrink_sums(right, low, high);
    add_products(left, right, s.weights(stage), s.keys(stage) + 4 * TILE);
    if (n + 2 < count) {
      barrier_arrive(WEIGHTS_READ + stage, 256);
      barrier_arrive(EMPTY + stage, 512);
    }
  }
}

// Sums of 128 columns from d0 on, as results into two tiles.
DEVICE void finish(float (&sums)[64], int d0, const float (&inverse)[2], const Turn& turn, uint8_t* tiles) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      float v[8], largest = 0.0f;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int j = group * 4 + p, d = d0 + j * 8 + own_column();
        float &a = v[2 * p], &b = v[2 * p + 1];
        a = rounded(sums[4 * j + 2 * h] * inverse[h]), b = rounded(sums[4 * j + 2 * h + 1] * inverse[h]);
        if (d0 + j * 8 >= KEPT) turn.turn<true>(a, b, d);
        largest = max_or_nan(max_or_nan(largest, fabsf(a)), fabsf(b));
      }
      if constexpr (CAST) {
        largest = max_or_nan(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        const Cast cast(max_or_nan(largest, __shfl_xor_sync(ALL_LANES, largest, 2)));
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = cast(v[i]);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int j = group * 4 + p;
        *reinterpret_cast<uint32_t*>(tiles + j / 8 * TILE + chunk_at(own_row() + 8 * h, j % 8) + own_column() * 2) =
            pair_of(v[2 * p], v[2 * p + 1]);
      }
    }
}

// Results of one warpgroup, its half of every head, from four tiles to memory.
DEVICE void write_half(const uint8_t* tiles, int half, bf16* out) {
  barrier_wait(OWN + half, 128);
#pragma unroll 4
  for (int e = threadIdx.x % 128; e < HEADS * 32; e += 128) {
    const int head = e / 32, chunk = e % 32;
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * HEADS + head) * WIDTH + half * (WIDTH / 2) + chunk * 8;
    *reinterpret_cast<uint4*>(out + at) =
        *reinterpret_cast<const uint4*>(tiles + chunk / 8 * TILE + chunk_at(head, chunk % 8));
  }
}

DEVICE void write_sums(const float (&sums)[64], int d0, float* partial) {
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    const int64_t row = (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * 64 + own_row() + i % 4 / 2 * 8;
    *reinterpret_cast<float2*>(partial + row * WIDTH + d0 + i / 4 * 8 + own_column()) = float2{sums[i], sums[i + 1]};
  }
}

// Half of the sum of every head to its place: the result, or a part of it.
DEVICE void leave(float (&left)[64], float (&right)[64], int half, const float (&inverse)[2], const Turn& turn,
                  const Shared& s, bf16* out, float* partial, int splits) {
  const int d0 = half * (WIDTH / 2);
  if (splits > 1) {
    write_sums(left, d0, partial);
    write_sums(right, d0 + WIDTH / 4, partial);
    return;
  }
  uint8_t* tiles = s.query() + half * 4 * TILE;  // the query has been read
  finish(left, d0, inverse, turn, tiles);
  finish(right, d0 + WIDTH / 4, inverse, turn, tiles + 2 * TILE);
  write_half(tiles, half, out);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    mega_attention(const bf16* q, const bf16* window_kv, const uint8_t* window, const uint8_t* compressed,
                   const int* page_table, const int* selected, const float* sink, const int* rows, const float* table,
                   bf16* out, float* partial, float* parts, float scale, int splits) {
  DYNAMIC_SHARED(memory);
  const Shared s{tiles_from(memory)};
  const Row row = row_at(rows, blockIdx.x);
  const int first = static_cast<int>(blockIdx.y) * ALL_TILES / splits;
  const int count = (static_cast<int>(blockIdx.y) + 1) * ALL_TILES / splits - first;
  const int half = threadIdx.x / 128;  // of the sum; 2 and 3 unpack
  if (half >= 2) {
    give_registers<80>();
    const int from = max(max(row[POSITION] - WINDOW + 1, row[FLOOR]), 0);
    const Sources sources{window_kv,    window, compressed, selected + static_cast<int64_t>(blockIdx.x) * SELECTED,
                          {page_table}, row,    from,       max(row[POSITION] + 1 - from, 0)};
    unpack_keys(sources, first, count, s);
  } else if (half == 0) {
    take_registers<192>();
    const Turn turn(table, row);
    read_query(q, turn, s);
    float left[64] = {}, right[64] = {}, inverse[2], top[2] = {NO_SCORE, NO_SCORE}, total[2] = {};
    score_keys(count, scale * LOG2E / KEY_SCALE, s, left, right, top, total);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = own_row() + 8 * h;
      if (splits > 1 && threadIdx.x % 4 == 0) {
        float* to = parts + ((static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * 64 + head) * 2;
        to[0] = top[h], to[1] = total[h];
      }
      inverse[h] = 1.0f / KEY_SCALE / (total[h] + power_of_two(sink[min(head, HEADS - 1)] * LOG2E - top[h]));
      if (threadIdx.x % 4 == 0) s.inverse()[head] = inverse[h];
    }
    barrier_arrive(TOTALS, 256);
    leave(left, right, 0, inverse, turn, s, out, partial, splits);
  } else {
    take_registers<160>();
    const Turn turn(table, row);
    read_query(q, turn, s);
    float left[64] = {}, right[64] = {};
    add_right_half(count, s, left, right);
    barrier_wait(TOTALS, 256);
    const float inverse[2] = {s.inverse()[own_row()], s.inverse()[own_row() + 8]};
    leave(left, right, 1, inverse, turn, s, out, partial, splits);
  }
}
