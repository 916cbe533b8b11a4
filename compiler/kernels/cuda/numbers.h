// Number formats of the plain kernels: bfloat16, e4m3, e8m0, e2m1 and the rounding of the quantizers.
#pragma once

#include <stdint.h>

#define DEVICE static __device__ __forceinline__

struct bf16 {
  uint16_t bits;
};

// C++ type of a tensor's elements by its dtype code in the plan (DTYPE_CODES in compiler/ops/native.py).
template <int CODE>
struct Stored;
template <>
struct Stored<0> {
  using type = float;
};
template <>
struct Stored<1> {
  using type = bf16;
};
template <>
struct Stored<2> {
  using type = uint8_t;  // e4m3
};
template <int CODE>
using stored = typename Stored<CODE>::type;

DEVICE float to_float(float v) { return v; }
DEVICE float to_float(bf16 v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }

template <class T>
DEVICE T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
// Round to nearest even; NaN keeps its sign and becomes quiet.
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float v) {
  const uint32_t u = __float_as_uint(v);
  const uint32_t rounded = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return bf16{static_cast<uint16_t>(rounded)};
}

// 2^(code-127); code 255 is NaN.
DEVICE float e8m0_to_float(uint8_t code) {
  return __uint_as_float(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}
// e4m3 (bias 7, 0x7f and 0xff are NaN). The code stands in a float32 whose exponent is 120 too small, subnormal codes
// included, so one exact product finishes it.
DEVICE float e4m3_to_float(uint32_t code) {
  const uint32_t u = (code & 0x7fu) << 20 | (code & 0x80u) << 24;
  return (code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : __uint_as_float(u) * 0x1p120f;
}
// e2m1 in the low 4 bits, in the same way.
DEVICE float e2m1_to_float(uint32_t code) { return __uint_as_float((code & 7u) << 22 | (code & 8u) << 28) * 0x1p126f; }

// Four consecutive values. `p` must be aligned to four elements.
DEVICE void load4(const float* p, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
DEVICE void load4(const bf16* p, float* out) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  out[0] = __uint_as_float(v.x << 16), out[1] = __uint_as_float(v.x & 0xffff0000u);
  out[2] = __uint_as_float(v.y << 16), out[3] = __uint_as_float(v.y & 0xffff0000u);
}
DEVICE void load4(const uint8_t* p, float* out) {  // e4m3
  const uint32_t v = *reinterpret_cast<const uint32_t*>(p);
  for (int i = 0; i < 4; ++i) out[i] = e4m3_to_float(v >> 8 * i & 0xffu);
}

// --- quantizers (compiler/ops/quantize.py): explicit roundings, so that nothing is contracted -------------

// The larger magnitude, NaN if either is: a group with a NaN has no scale.
DEVICE float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }

// 2^ceil(log2(v)) of a positive normal float.
DEVICE float power_of_two_at_least(float v) {
  return __uint_as_float((__float_as_uint(v) + 0x007fffffu) & 0x7f800000u);
}
DEVICE float leading_power(float v) { return __uint_as_float(__float_as_uint(v) & 0x7f800000u); }

// Adding and subtracting 1.5 * 2^23 units of the last kept bit rounds to it, ties to even. |v| <= 448.
DEVICE float round_e4m3(float v) {
  const float step = __fmul_rn(fmaxf(leading_power(v), 0x1p-6f), 0x1.8p20f);
  return copysignf(__fsub_rn(__fadd_rn(v, step), step), v);
}
// v >= 0, at most 6.
DEVICE float round_e2m1(float v) {
  const float step = __fmul_rn(fmaxf(leading_power(v), 1.0f), 0x1.8p22f);
  return __fsub_rn(__fadd_rn(v, step), step);
}

// One value of a group of 32 whose largest magnitude is `largest`.
DEVICE float quantize_fp8_value(float v, float largest) {
  const float scale = power_of_two_at_least(__fdiv_rn(max_or_nan(largest, 1e-4f), 448.0f));
  return __fmul_rn(round_e4m3(__fdiv_rn(v, scale)), scale);
}
