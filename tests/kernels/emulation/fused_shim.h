// What the fused kernels use beyond cuda_shim.h: vector types, warp reductions and the conversions that are one PTX
// instruction on the device.
#pragma once

#include "cuda_shim.h"

struct alignas(8) float2 {
  float x, y;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t chosen) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> (chosen >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return result;
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, const T& v) {
  *p = v;
}

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  const int own = shim::lane_of_block();
  shim::exchange[own] = 0;
  memcpy(&shim::exchange[own], &value, sizeof value);
  shim::wait_warp();
  T result;
  memcpy(&result, &shim::exchange[(own & ~31) | lane], sizeof result);
  shim::wait_warp();
  return result;
}
template <class Choose>
uint32_t reduce_warp(uint32_t value, Choose choose) {
  for (int distance = 16; distance > 0; distance >>= 1) value = choose(value, __shfl_xor_sync(~0u, value, distance));
  return value;
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t v) {
  return reduce_warp(v, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
}
inline uint32_t __reduce_min_sync(unsigned, uint32_t v) {
  return reduce_warp(v, [](uint32_t a, uint32_t b) { return b < a ? b : a; });
}

namespace dsv41c {

inline uint32_t bf16_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  if (x != x) return 0x7FFF;
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}
inline uint32_t pack(float a, float b) { return bf16_bits(a) | bf16_bits(b) << 16; }

inline float largest(float a, float b) { return a != a || b != b ? NAN : a < b ? b : a; }

// Nearest e4m3 code, ties to even, saturating; the step of a binade is 1/8 of it, at least 2**-9.
inline uint32_t e4m3(float x) {
  const uint32_t sign = __float_as_uint(x) >> 31 << 7;
  if (x != x) return sign | 0x7F;
  const float magnitude = std::min(fabsf(x), 448.0f);
  const int exponent = std::max(magnitude > 0 ? ilogbf(magnitude) : -6, -6);
  const int steps = static_cast<int>(nearbyintf(ldexpf(magnitude, 3 - exponent)));  // 8..16 of a normal number
  return sign | static_cast<uint32_t>(steps + (exponent + 6) * 8);
}
inline uint32_t e4m3_pair(float a, float b) { return e4m3(a) | e4m3(b) << 8; }

}  // namespace dsv41c
