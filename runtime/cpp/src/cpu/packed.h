// Packed rows of state (uint8): codes, then scales, of numbers that a quantizer left on its grid. The definition is
// compiler/ops/packed.py; a group with a NaN has a NaN scale.
#pragma once

#include <cmath>
#include <string>

#include "kernel.h"

namespace dsv41c::cpu {

enum class Packing { NONE, FP8, FP4_KV, FP4_INDEX };

inline int64_t packed_bytes(Packing packing, int64_t width) {
  switch (packing) {
    case Packing::FP8:
      return width + width / 32;
    case Packing::FP4_KV:
      return width / 2 + width / 16;
    case Packing::FP4_INDEX:
      return width / 2 + width / 32;
    case Packing::NONE:
      return 0;
  }
  return 0;
}

// How state `t` holds rows of `width` numbers of `dtype`; throws std::invalid_argument when it does not.
inline Packing require_state(const dsv41c_tensor& t, const char* name, int32_t dtype, int64_t width) {
  require(t, name, {dtype, DSV41C_UINT8}, 3);
  if (t.dtype == dtype) {
    require_size(t, name, 2, width);
    return Packing::NONE;
  }
  for (const Packing packing : {Packing::FP8, Packing::FP4_KV, Packing::FP4_INDEX})
    if (width % 32 == 0 && t.sizes[2] == packed_bytes(packing, width)) return packing;
  throw std::invalid_argument(std::string(name) + " of " + std::to_string(t.sizes[2]) + " bytes, needed a row of " +
                              std::to_string(width) + " packed numbers");
}
// The same of tensors that `require_state` has seen.
inline Packing packing_of(const dsv41c_tensor& t, int64_t width) noexcept {
  if (t.dtype != DSV41C_UINT8) return Packing::NONE;
  for (const Packing packing : {Packing::FP8, Packing::FP4_KV})
    if (t.sizes[2] == packed_bytes(packing, width)) return packing;
  return Packing::FP4_INDEX;
}

inline float e2m1_to_float(uint32_t code) {
  constexpr float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return code & 8 ? -values[code & 7] : values[code & 7];
}

template <class T>
void unpack_row(Packing packing, const uint8_t* from, int64_t width, T* out) noexcept {
  const bool bytes = packing == Packing::FP8;
  const int64_t group = packing == Packing::FP4_KV ? 16 : 32;
  const uint8_t* scales = from + (bytes ? width : width / 2);
  for (int64_t d = 0; d < width; ++d) {
    const uint8_t code = scales[d / group];
    const float scale = packing == Packing::FP4_KV ? e4m3_to_float(code) : e8m0_to_float(code);
    const float value = bytes ? e4m3_to_float(from[d]) : e2m1_to_float(from[d / 2] >> (d % 2 * 4) & 15);
    out[d] = from_float<T>(value * scale);
  }
}

// --- packing ------------------------------------------------------------------------------------------------

inline uint32_t float_bits(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  return u;
}
inline float float_of(uint32_t u) {
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}
// 2^ceil(log2(v)) of a positive normal float.
inline float power_of_two_at_least(float v) { return float_of((float_bits(v) + 0x007fffffu) & 0x7f800000u); }

// Adding and subtracting a power of two rounds to its last place, ties to even. `v` in magnitude at most 448.
inline uint8_t e4m3_code(float v) {
  const float step = std::fmax(float_of(float_bits(v) & 0x7f800000u), 0x1p-6f) * 0x1.8p20f;
  const float rounded = (std::fabs(v) + step) - step;
  const uint32_t code = rounded < 0x1p-6f ? static_cast<uint32_t>(rounded * 512.0f) : (float_bits(rounded) >> 20) - 960;
  return static_cast<uint8_t>(code | (float_bits(v) >> 31 << 7));
}
// `v` >= 0; above 6 saturates.
inline float round_e2m1(float v) {
  if (v > 6.0f) return 6.0f;
  const float step = std::fmax(float_of(float_bits(v) & 0x7f800000u), 1.0f) * 0x1.8p22f;
  return (v + step) - step;
}
inline uint32_t e2m1_code(float v) {
  const float m = std::fabs(v);
  const uint32_t magnitude = m < 2.0f    ? static_cast<uint32_t>(m * 2.0f)
                             : m == 2.0f ? 4
                             : m == 3.0f ? 5
                             : m == 4.0f ? 6
                                         : 7;
  return magnitude | (float_bits(v) >> 31 << 3);
}
inline float e4m3_scale(float wanted) {
  return e4m3_to_float(e4m3_code(std::fmin(std::fmax(wanted, 0x1p-9f), 448.0f)));
}

// One group of `x`; gives the code of its scale and writes codes at `out`.
inline uint8_t pack_group(Packing packing, const float* x, int64_t group, uint8_t* out) noexcept {
  const int64_t code_bytes = packing == Packing::FP8 ? group : group / 2;
  float largest = 0.0f;
  for (int64_t d = 0; d < group; ++d) {
    if (x[d] != x[d]) {
      std::memset(out, 0, code_bytes);
      return packing == Packing::FP4_KV ? 0x7f : 0xff;
    }
    largest = std::fmax(largest, std::fabs(x[d]));
  }
  if (packing == Packing::FP8) {
    const float scale = power_of_two_at_least(std::fmax(largest, 1e-4f) / 448.0f);
    for (int64_t d = 0; d < group; ++d) out[d] = e4m3_code(x[d] / scale);
    return static_cast<uint8_t>(float_bits(scale) >> 23);
  }
  float scale = packing == Packing::FP4_KV ? e4m3_scale(largest / 6.0f)
                                           : power_of_two_at_least(std::fmax(largest, 0x1.8p-124f) / 6.0f);
  bool on_grid = true;
  for (int64_t d = 0; d < group; ++d) on_grid &= round_e2m1(std::fabs(x[d]) / scale) * scale == std::fabs(x[d]);
  // e4m3 steps coarsely below 2^-6: there the quantizer may have rounded the largest value down to 4.
  if (packing == Packing::FP4_KV && !on_grid) scale = e4m3_scale(largest / 4.0f);
  for (int64_t d = 0; d < group; d += 2) {
    const float low = std::copysign(round_e2m1(std::fabs(x[d]) / scale), x[d]);
    const float high = std::copysign(round_e2m1(std::fabs(x[d + 1]) / scale), x[d + 1]);
    out[d / 2] = static_cast<uint8_t>(e2m1_code(low) | e2m1_code(high) << 4);
  }
  return packing == Packing::FP4_KV ? e4m3_code(scale) : static_cast<uint8_t>(float_bits(scale) >> 23);
}

// Row `from` as state holds it.
template <class T>
void store_row(Packing packing, const T* from, int64_t width, void* to) noexcept {
  if (packing == Packing::NONE) {
    std::memcpy(to, from, width * sizeof(T));
    return;
  }
  const int64_t group = packing == Packing::FP4_KV ? 16 : 32, code_bytes = packing == Packing::FP8 ? width : width / 2;
  uint8_t* codes = static_cast<uint8_t*>(to);
  for (int64_t g = 0; g < width / group; ++g) {
    float x[32];
    for (int64_t d = 0; d < group; ++d) x[d] = to_float(from[g * group + d]);
    codes[code_bytes + g] = pack_group(packing, x, group, codes + g * code_bytes * group / width);
  }
}

}  // namespace dsv41c::cpu
