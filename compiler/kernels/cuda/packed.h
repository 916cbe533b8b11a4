// Packed rows of state: codes, then scales (compiler/ops/packed.py). HOW: 0 none, 1 FP8, 2 FP4 with an e4m3 scale
// for 16, 3 FP4 with a ue8m0 scale for 32.
#pragma once

#include "element.h"
#include "reduce.h"

enum Packing { PLAIN, FP8, FP4_KV, FP4_INDEX };

// Elements of memory of one row of `width` numbers: bytes, or numbers where it is not packed.
DEVICE constexpr int row_length(int packing, int width) {
  return packing == FP8      ? width + width / 32
         : packing == FP4_KV ? width / 2 + width / 16
         : packing           ? width / 2 + width / 32
                             : width;
}

// Number d of a row of ROW numbers.
template <int HOW, int ROW, class T>
DEVICE float packed_value(const void* row, int d) {
  if constexpr (HOW == PLAIN) {
    return to_float(static_cast<const T*>(row)[d]);
  } else {
    const uint8_t* bytes = static_cast<const uint8_t*>(row);
    if constexpr (HOW == FP8) return e4m3_to_float(bytes[d]) * e8m0_to_float(bytes[ROW + d / 32]);
    const float value = e2m1_to_float(bytes[d / 2] >> (d % 2 * 4) & 15u);
    const uint8_t scale = bytes[ROW / 2 + d / (HOW == FP4_KV ? 16 : 32)];
    return value * (HOW == FP4_KV ? e4m3_to_float(scale) : e8m0_to_float(scale));
  }
}

// --- packing ---------------------------------------------------------------------------------------

// `v` in magnitude at most 448, on the grid or not.
DEVICE uint32_t e4m3_code(float v) {
  const float rounded = fabsf(round_e4m3(v));
  const uint32_t code =
      rounded < 0x1p-6f ? static_cast<uint32_t>(rounded * 512.0f) : (__float_as_uint(rounded) >> 20) - 960u;
  return code | (__float_as_uint(v) >> 31 << 7);
}
DEVICE uint32_t e2m1_code(float magnitude, float sign) {
  const uint32_t code = magnitude < 2.0f    ? static_cast<uint32_t>(magnitude * 2.0f)
                        : magnitude == 2.0f ? 4u
                        : magnitude == 3.0f ? 5u
                        : magnitude == 4.0f ? 6u
                                            : 7u;
  return code | (__float_as_uint(sign) >> 31 << 3);
}
DEVICE float quotient_e2m1(float v, float scale) {
  const float q = __fdiv_rn(fabsf(v), scale);
  return round_e2m1(q > 6.0f ? 6.0f : q);
}
DEVICE float e4m3_scale(float wanted) { return round_e4m3(fminf(fmaxf(wanted, 0x1p-9f), 448.0f)); }

// What one number of a row becomes. Every lane of the number's group must call it with its own one; lanes are numbers.
struct PackedNumber {
  uint32_t code, scale;
};
template <int HOW>
DEVICE PackedNumber pack_number(float v) {
  constexpr int GROUP = HOW == FP4_KV ? 16 : 32;
  const float found = lanes_max_or_nan<GROUP>(fabsf(v));
  const bool bad = found != found;
  const float largest = bad ? 0.0f : found;
  if (bad) v = 0.0f;
  if constexpr (HOW == FP8) {
    const float scale = power_of_two_at_least(__fdiv_rn(fmaxf(largest, 1e-4f), 448.0f));
    return {e4m3_code(__fdiv_rn(v, scale)), bad ? 0xffu : __float_as_uint(scale) >> 23};
  } else if constexpr (HOW == FP4_INDEX) {
    const float scale = power_of_two_at_least(__fdiv_rn(fmaxf(largest, 0x1.8p-124f), 6.0f));
    return {e2m1_code(quotient_e2m1(v, scale), v), bad ? 0xffu : __float_as_uint(scale) >> 23};
  } else {
    float scale = e4m3_scale(__fdiv_rn(largest, 6.0f));
    // e4m3 steps coarsely below 2^-6: there the quantizer may have rounded the largest value down to 4.
    const float off_grid = __fmul_rn(quotient_e2m1(v, scale), scale) == fabsf(v) ? 0.0f : 1.0f;
    if (lanes_max_or_nan<GROUP>(off_grid) > 0.0f) scale = e4m3_scale(__fdiv_rn(largest, 4.0f));
    return {e2m1_code(quotient_e2m1(v, scale), v), bad ? 0x7fu : e4m3_code(scale)};
  }
}

// Stores number `v`, number d of its row, at `row`. All 32 lanes of a warp must call it, those that store nothing too;
// a warp holds neighbours of one row.
template <int HOW, int ROW, class T>
DEVICE void store_number(void* row, int d, T v, bool stores) {
  if constexpr (HOW == PLAIN) {
    if (stores) static_cast<T*>(row)[d] = v;
  } else {
    constexpr int GROUP = HOW == FP4_KV ? 16 : 32, CODES = HOW == FP8 ? ROW : ROW / 2;
    const PackedNumber packed = pack_number<HOW>(to_float(v));
    uint32_t code = packed.code;
    if constexpr (HOW != FP8) code |= __shfl_xor_sync(ALL_LANES, packed.code, 1) << 4;  // used by even lanes
    if (!stores) return;
    uint8_t* bytes = static_cast<uint8_t*>(row);
    if constexpr (HOW == FP8) bytes[d] = static_cast<uint8_t>(code);
    if (HOW != FP8 && d % 2 == 0) bytes[d / 2] = static_cast<uint8_t>(code);
    if (d % GROUP == 0) bytes[CODES + d / GROUP] = static_cast<uint8_t>(packed.scale);
  }
}
