// Keys of a tile of attention, from packed state to bf16 in shared memory. A thread takes a quarter of one key.
#pragma once

#include "attention_result.h"
#include "packed.h"

// A key as a number: its row in the ring or the pool, THIS_STEP - row for a row of this step, NO_KEY for none.
constexpr int NO_KEY = -1, THIS_STEP = -2;

struct Sources {
  const bf16* chunk;
  const uint8_t *ring, *entries;
  const int* selected;
  PagedPool<POOL_PAGES, PAGE_ROWS, PAGES_PER_SLOT> pool;
  Row row;
  int first, count;  // positions of the window

  // Key k of all: WINDOW places of the window, then those of the selection.
  __device__ __forceinline__ int key(int k) const {
    if (k < WINDOW) {
      const int u = first + k;
      if (k >= count) return NO_KEY;
      return u >= row[BASE] ? THIS_STEP - (row[FIRST_ROW] + u - row[BASE]) : row[SLOT] * RING + u % RING;
    }
    const int j = k - WINDOW < SELECTED ? selected[k - WINDOW] : NO_KEY;
    return j < 0 ? NO_KEY : static_cast<int>(pool.entry(row[SLOT], j));
  }
  // What takes no part has a place that may be read.
  __device__ __forceinline__ const uint8_t* in_ring(int key) const {
    return ring + static_cast<int64_t>(max(key, 0)) * row_length(FP8, WIDTH);
  }
  __device__ __forceinline__ const uint8_t* in_pool(int key) const {
    return entries + static_cast<int64_t>(max(key, 0)) * row_length(FP4_KV, WIDTH);
  }
  __device__ __forceinline__ const bf16* in_step(int key) const {
    return chunk + static_cast<int64_t>(THIS_STEP - key) * WIDTH;
  }
};

// Codes and scales of a quarter of a key.
struct RingCodes {
  uint4 codes[8];
  uint32_t scales;
  __device__ __forceinline__ void read(const uint8_t* key, int quarter) {
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = reinterpret_cast<const uint4*>(key + quarter * 128)[i];
    scales = *reinterpret_cast<const uint32_t*>(key + WIDTH + quarter * 4);
  }
};
struct EntryCodes {
  uint4 codes[4];
  uint2 scales;
  __device__ __forceinline__ void read(const uint8_t* key, int quarter) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = reinterpret_cast<const uint4*>(key + quarter * 64)[i];
    scales = *reinterpret_cast<const uint2*>(key + WIDTH / 2 + quarter * 8);
  }
};

DEVICE uint32_t both(uint32_t half) { return half | half << 16; }
// bf16 of 2^(code - 127) * 2^120 * KEY_SCALE, of NaN for 255; above 2^21 it is cut off, which no normalised key
// reaches.
DEVICE uint32_t e8m0_factor(uint32_t code) { return both(code == 255u ? 0x7fffu : min(code + 106u, 254u) << 7); }
// bf16 of an e4m3 scale * 2^126 * KEY_SCALE.
DEVICE uint32_t e4m3_factor(uint32_t code) {
  return both(__float_as_uint(e4m3_to_float(code & 0xffu) * 0x1p112f) >> 16);
}
// Four e4m3 codes: their bits are those of bf16 numbers 2^-120 too small.
DEVICE uint2 four_e4m3(uint32_t codes, uint32_t factor) {
  const uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);
  return {multiply_pairs((a & 0x80008000u) | ((a >> 4) & 0x07f007f0u), factor),
          multiply_pairs((b & 0x80008000u) | ((b >> 4) & 0x07f007f0u), factor)};
}
// Eight e2m1 codes: bf16 numbers 2^-126 too small.
DEVICE uint4 eight_e2m1(uint32_t codes, uint32_t factor) {
  uint32_t pair[4];  // codes n and n + 4
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const uint32_t moved = codes << (4 * (3 - n));
    pair[n] = multiply_pairs((moved & 0x80008000u) | ((moved >> 6) & 0x01c001c0u), factor);
  }
  return {__byte_perm(pair[0], pair[1], 0x5410), __byte_perm(pair[2], pair[3], 0x5410),
          __byte_perm(pair[0], pair[1], 0x7632), __byte_perm(pair[2], pair[3], 0x7632)};
}

// Key r of a tile; `keys`: eight tiles side by side. A key that takes no part becomes zeros.
DEVICE void unpack(const RingCodes& read, bool takes_part, int quarter, int r, uint8_t* keys) {
  uint8_t* to = keys + quarter * 2 * TILE;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t factor = takes_part ? e8m0_factor(read.scales >> (i / 2 * 8) & 0xffu) : 0u;
    const uint2 a = four_e4m3(read.codes[i].x, factor), b = four_e4m3(read.codes[i].y, factor);
    const uint2 c = four_e4m3(read.codes[i].z, factor), d = four_e4m3(read.codes[i].w, factor);
    uint8_t* tile = to + i / 4 * TILE;
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 4 * 2)) = uint4{a.x, a.y, b.x, b.y};
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 4 * 2 + 1)) = uint4{c.x, c.y, d.x, d.y};
  }
}
DEVICE void unpack(const EntryCodes& read, bool takes_part, int quarter, int r, uint8_t* keys) {
  uint8_t* to = keys + quarter * 2 * TILE;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = (i < 2 ? read.scales.x : read.scales.y) >> (i % 2 * 16);
    const uint32_t low = takes_part ? e4m3_factor(two) : 0u, high = takes_part ? e4m3_factor(two >> 8) : 0u;
    uint8_t* tile = to + i / 2 * TILE;
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 2 * 4)) = eight_e2m1(read.codes[i].x, low);
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 2 * 4 + 1)) = eight_e2m1(read.codes[i].y, low);
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 2 * 4 + 2)) = eight_e2m1(read.codes[i].z, high);
    *reinterpret_cast<uint4*>(tile + chunk_at(r, i % 2 * 4 + 3)) = eight_e2m1(read.codes[i].w, high);
  }
}
DEVICE void scale_row(const bf16* key, int quarter, int r, uint8_t* keys) {
  constexpr uint32_t factor = (127 - 14) << 7 | (127 - 14) << 23;
  uint8_t* to = keys + quarter * 2 * TILE;
#pragma unroll 4
  for (int i = 0; i < 16; ++i) {
    const uint4 v = reinterpret_cast<const uint4*>(key + quarter * 128)[i];
    *reinterpret_cast<uint4*>(to + i / 8 * TILE + chunk_at(r, i % 8)) =
        uint4{multiply_pairs(v.x, factor), multiply_pairs(v.y, factor), multiply_pairs(v.z, factor),
              multiply_pairs(v.w, factor)};
  }
}
