// Bit-level pieces that the fused kernels share: bf16 pairs and the MXFP8 cast.
#pragma once
#include <cstdint>

namespace dsv41c {

// A bf16 pair in one register: the element with the lower index in the lower half.
__device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

#ifdef __CUDACC__
__device__ __forceinline__ uint32_t pack(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

// Largest magnitude as NaN-keeping maximum: torch's amax gives NaN when any element is NaN.
__device__ __forceinline__ float largest(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}

__device__ __forceinline__ uint32_t e4m3_pair(float a, float b) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  return pair;
}
#endif  // else the host emulation of the tests brings its own

__device__ __forceinline__ void unpack(const uint4& v, float (&out)[8]) {
  out[0] = low(v.x), out[1] = high(v.x), out[2] = low(v.y), out[3] = high(v.y);
  out[4] = low(v.z), out[5] = high(v.z), out[6] = low(v.w), out[7] = high(v.w);
}

// ue8m0 code of 2**ceil(log2(max(amax, 1e-4) / 448)). 448 is 1.75 * 2**8, so the mantissa decides the rounding.
__device__ __forceinline__ uint32_t scale_code(float amax) {
  const uint32_t bits = __float_as_uint(largest(amax, 1e-4f));
  return (bits >> 23) - 8 + ((bits & 0x007FFFFFu) > 0x00600000u ? 1 : 0);
}
__device__ __forceinline__ float inverse_scale(uint32_t code) { return __uint_as_float((254 - code) << 23); }

__device__ __forceinline__ uint2 e4m3_eight(const float (&x)[8], float inverse) {
  uint2 codes;
  codes.x = e4m3_pair(x[0] * inverse, x[1] * inverse) | e4m3_pair(x[2] * inverse, x[3] * inverse) << 16;
  codes.y = e4m3_pair(x[4] * inverse, x[5] * inverse) | e4m3_pair(x[6] * inverse, x[7] * inverse) << 16;
  return codes;
}

__device__ __forceinline__ float amax_eight(const float (&x)[8]) {
  float m = fabsf(x[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) m = largest(m, fabsf(x[i]));
  return m;
}

// Exactly rounded: the bytes then depend on the order of one sum only.
__device__ __forceinline__ float reciprocal_root(float mean_square, float eps) {
  return __frcp_rn(__fsqrt_rn(mean_square + eps));
}

__device__ __forceinline__ float quad_max(float v) {
  v = largest(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
  return largest(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xFFFFFFFFu, v, offset);
  return v;
}

}  // namespace dsv41c
