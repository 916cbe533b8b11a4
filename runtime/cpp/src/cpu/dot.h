// Dot products whose bits depend on the two vectors alone: 16 lanes over K, then one fixed tree.
//
// Every tile shape sums one output in the same order, so a row's result does not change with the number or
// the order of the rows around it. Vectors are float32 and zero-filled up to a multiple of 16.
#pragma once

#include "kernel.h"

namespace dsv41c::cpu {

typedef float v4 __attribute__((vector_size(16)));
typedef float v8 __attribute__((vector_size(32)));

constexpr int64_t LANES = 16;
constexpr int64_t PANEL = 4;  // weight rows that are expanded and used together

inline int64_t padded(int64_t k) { return (k + LANES - 1) / LANES * LANES; }

inline v8 load8(const float* p) {
  v8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// [sum a, sum b, sum c, sum d], each as ((0+1)+(2+3)) + ((4+5)+(6+7)).
inline v4 reduce4(v8 a, v8 b, v8 c, v8 d) {
  v8 ab = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
          __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  v8 cd = __builtin_shufflevector(c, d, 0, 8, 2, 10, 4, 12, 6, 14) +
          __builtin_shufflevector(c, d, 1, 9, 3, 11, 5, 13, 7, 15);
  v8 all = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
}

// The four dot products of R rows with 4/R weight rows, row-major. 8 accumulators fill the FMA pipes.
template <int R>
inline v4 dot_tile(const float* const* x, const float* const* w, int64_t k) {
  constexpr int N = 4 / R;
  v8 lo[4] = {}, hi[4] = {};
  for (int64_t i = 0; i < k; i += LANES) {
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o) {
      lo[o] += load8(x[o / N] + i) * load8(w[o % N] + i);
      hi[o] += load8(x[o / N] + i + 8) * load8(w[o % N] + i + 8);
    }
  }
  return reduce4(lo[0] + hi[0], lo[1] + hi[1], lo[2] + hi[2], lo[3] + hi[3]);
}

inline float dot(const float* a, const float* b, int64_t k) {
  v8 lo = {}, hi = {};
  for (int64_t i = 0; i < k; i += LANES) {
    lo += load8(a + i) * load8(b + i);
    hi += load8(a + i + 8) * load8(b + i + 8);
  }
  v8 sum = lo + hi;
  return reduce4(sum, sum, sum, sum)[0];
}

// Calls store(t, v4 of the four outputs) for every row t < rows; row(t) points at its k values.
template <class Row, class Store>
inline void dot_panel(const float* const* w, int64_t k, int64_t rows, Row row, Store store) {
  int64_t t = 0;
  for (; t + 2 <= rows; t += 2) {
    const float* x[2] = {row(t), row(t + 1)};
    v4 left = dot_tile<2>(x, w, k), right = dot_tile<2>(x, w + 2, k);
    store(t, __builtin_shufflevector(left, right, 0, 1, 4, 5));
    store(t + 1, __builtin_shufflevector(left, right, 2, 3, 6, 7));
  }
  if (t < rows) {
    const float* x[1] = {row(t)};
    store(t, dot_tile<1>(x, w, k));
  }
}

// Widens `rows` rows of k values, `stride` apart, to float32 rows of padded(k).
template <class T>
inline void widen_rows(const T* x, int64_t rows, int64_t stride, int64_t k, float* out) {
  const int64_t kp = padded(k);
  for (int64_t t = 0; t < rows; ++t) {
    float* o = out + t * kp;
    for (int64_t i = 0; i < k; ++i) o[i] = to_float(x[t * stride + i]);
    for (int64_t i = k; i < kp; ++i) o[i] = 0.0f;
  }
}
inline void widen_activation(const dsv41c_tensor& x, int64_t offset, int64_t rows, int64_t stride, int64_t k,
                             float* out) {
  if (x.dtype == DSV41C_FLOAT32)
    widen_rows(data<float>(x) + offset, rows, stride, k, out);
  else
    widen_rows(data<bf16>(x) + offset, rows, stride, k, out);
}

// A weight of float32, bfloat16, or e4m3 with one e8m0 scale per 32x32 block.
struct Weight {
  const dsv41c_tensor& values;
  const dsv41c_tensor& scale;
};

// Row n of the weight as padded float32; `panel` is used unless the stored row serves as it is.
const float* weight_row(const Weight& weight, int64_t n, float* panel);

}  // namespace dsv41c::cpu
