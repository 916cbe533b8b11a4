// Dot products and weighted sums whose order depends on the length alone: 32 lanes, one fixed reduction tree.
#pragma once

#include "kernel.h"

namespace dsv41c::cpu {

using Lanes = float __attribute__((vector_size(32)));

inline Lanes load_lanes(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Lanes load_lanes(const bf16* p) {
  using Half = uint16_t __attribute__((vector_size(16)));
  using Word = uint32_t __attribute__((vector_size(32)));
  Half h;
  std::memcpy(&h, p, sizeof h);
  const Word w = __builtin_convertvector(h, Word) << 16;
  Lanes v;
  std::memcpy(&v, &w, sizeof v);
  return v;
}

// ((0+4) + (2+6)) + ((1+5) + (3+7))
inline float sum_lanes(Lanes v) {
  const auto four = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

// Sum of a[i] * b[i] in float32. The tail (n % 8) is added one by one after the lanes.
template <class A, class B>
inline float lane_dot(const A* a, const B* b, int64_t n) {
  Lanes s0{}, s1{}, s2{}, s3{};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    s0 += load_lanes(a + i) * load_lanes(b + i);
    s1 += load_lanes(a + i + 8) * load_lanes(b + i + 8);
    s2 += load_lanes(a + i + 16) * load_lanes(b + i + 16);
    s3 += load_lanes(a + i + 24) * load_lanes(b + i + 24);
  }
  for (; i + 8 <= n; i += 8) s0 += load_lanes(a + i) * load_lanes(b + i);
  float sum = sum_lanes((s0 + s2) + (s1 + s3));
  for (; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

// sum[i] += weight * x[i]
template <class T>
inline void add_scaled(float* sum, float weight, const T* x, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const Lanes v = load_lanes(sum + i) + weight * load_lanes(x + i);
    std::memcpy(sum + i, &v, sizeof v);
  }
  for (; i < n; ++i) sum[i] += weight * to_float(x[i]);
}

}  // namespace dsv41c::cpu
