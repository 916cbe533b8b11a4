// What becomes of a row's attention: bf16, inverse rotary of the last ROPE numbers of a head, MXFP8 rounding where
// CAST.
#pragma once

#include "numbers.h"
#include "row_view.h"
#include "warpgroup.h"

constexpr int WIDTH = 512;  // of a head
constexpr int KEPT = WIDTH - ROPE;
constexpr float KEY_SCALE = 0x1p-14f;  // keys lie in shared memory times this, which keeps FP4 times its scale in range
constexpr float LOG2E = 1.44269504088896340736f;

DEVICE float rounded(float v) { return to_float(from_float<bf16>(v)); }

struct Turn {
  const float* angles;  // (cos, sin) of the row's position
  __device__ __forceinline__ Turn(const float* table, const Row& row)
      : angles(table + static_cast<int64_t>(min(max(row[POSITION], 0), MAX_POSITIONS - 1)) * ROPE) {}
  // Numbers d and d + 1 of a head, d even and at least KEPT.
  template <bool INVERSE>
  __device__ __forceinline__ void turn(float& a, float& b, int d) const {
    const float cos = angles[d - KEPT], sin = angles[d - KEPT + 1];
    const float a_cos = __fmul_rn(a, cos), a_sin = __fmul_rn(a, sin), b_cos = __fmul_rn(b, cos),
                b_sin = __fmul_rn(b, sin);
    a = rounded(INVERSE ? __fadd_rn(a_cos, b_sin) : __fsub_rn(a_cos, b_sin));
    b = rounded(INVERSE ? __fsub_rn(b_cos, a_sin) : __fadd_rn(b_cos, a_sin));
  }
};

// MXFP8 rounding of values whose group of 32 has this largest magnitude. 448 is 1.75 * 2^8: the mantissa decides which
// power of two the scale is.
struct Cast {
  float scale, inverse;
  __device__ __forceinline__ explicit Cast(float largest) {
    const uint32_t bits = __float_as_uint(max_or_nan(largest, 1e-4f));
    const uint32_t code = (bits >> 23) - 8u + ((bits & 0x007fffffu) > 0x00600000u);
    scale = __uint_as_float(code << 23), inverse = __uint_as_float((254u - code) << 23);
  }
  __device__ __forceinline__ float operator()(float v) const {
    return __fmul_rn(round_e4m3(__fmul_rn(v, inverse)), scale);
  }
};
