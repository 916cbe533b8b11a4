// linear and grouped_linear: y = x * W^T. Macros: X (type), WEIGHT (float, bf16 or uint8_t for e4m3 with e8m0 scales of
// 32x32 blocks), OUT, K, N (of one group), GROUPS. Every output sums K in steps of 32: a step alone, then added to the
// total, whatever the number of rows.
#include "numbers.h"

constexpr int TM = 32, TN = 64, TK = 32, THREADS = 128;  // each thread owns 4x4 outputs
constexpr int BLOCK = 32;                                // weight rows and columns that share one scale
constexpr int SCALES = (K + BLOCK - 1) / BLOCK;
constexpr bool SCALED = sizeof(WEIGHT) == 1;

DEVICE float widen(float v) { return v; }
DEVICE float widen(bf16 v) { return to_float(v); }
DEVICE float widen(uint8_t v) { return e4m3_to_float(v); }

// Values k..k+3 of a row, zeros past its end.
template <class T>
DEVICE void load_quad(const T* row, int k, float* out) {
  if constexpr (K % 4 == 0) {
    if (k < K) return load4(row + k, out);
    for (int i = 0; i < 4; ++i) out[i] = 0.0f;
  } else {
    for (int i = 0; i < 4; ++i) out[i] = k + i < K ? widen(row[k + i]) : 0.0f;
  }
}

// Quads of ROWS rows of K from column k0 on, transposed into tile[k][row]; rows from `limit` on are zeros.
template <int ROWS, int STRIDE, class T>
DEVICE void load_tile(const T* first, int64_t row_stride, int limit, int k0, const uint8_t* scale, int64_t scale_row, float* tile) {
  for (int q = threadIdx.x; q < ROWS * (TK / 4); q += THREADS) {
    const int row = q / (TK / 4), k = q % (TK / 4) * 4;
    float v[4] = {};
    if (row < limit) {
      load_quad(first + row * row_stride, k0 + k, v);
      if constexpr (sizeof(T) == 1) {
        const float s = e8m0_to_float(scale[(scale_row + row) / BLOCK * SCALES + k0 / BLOCK]);
        for (int i = 0; i < 4; ++i) v[i] *= s;
      }
    }
    for (int i = 0; i < 4; ++i) tile[(k + i) * STRIDE + row] = v[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    linear(const X* x, const WEIGHT* weight, const uint8_t* scale, OUT* y, int rows) {
  __shared__ __align__(16) float xs[TK * (TM + 4)];
  __shared__ __align__(16) float ws[TK * (TN + 4)];
  const int m0 = blockIdx.x * TM, n0 = blockIdx.y * TN, group = blockIdx.z;
  const int m = threadIdx.x / 16 * 4, n = threadIdx.x % 16 * 4;
  const X* x_first = x + (static_cast<int64_t>(m0) * GROUPS + group) * K;
  const int64_t weight_row = static_cast<int64_t>(group) * N + n0;
  const bool live = m0 + m < rows;
  float total[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += TK) {
    load_tile<TM, TM + 4>(x_first, static_cast<int64_t>(GROUPS) * K, rows - m0, k0, nullptr, 0, xs);
    load_tile<TN, TN + 4>(weight + weight_row * K, K, N - n0, k0, scale, weight_row, ws);
    __syncthreads();
    if (live) {
      float step[4][4] = {};
#pragma unroll 8
      for (int k = 0; k < TK; ++k) {
        float a[4], b[4];
        load4(xs + k * (TM + 4) + m, a);
        load4(ws + k * (TN + 4) + n, b);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) step[i][j] = fmaf(a[i], b[j], step[i][j]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] += step[i][j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (m0 + m + i < rows && n0 + n + j < N)
        y[((static_cast<int64_t>(m0) + m + i) * GROUPS + group) * N + n0 + n + j] = from_float<OUT>(total[i][j]);
}
