// linear and grouped_linear: y = x * W^T. Macros: ACT, WEIGHT, OUT (dtype codes; an e4m3 weight has e8m0 scales of
// 32x32 blocks), WIDTH (summed over), OUTPUTS (of one group), GROUPS. Every output sums WIDTH in steps of 32: a step
// alone, then added to the total, whatever the number of rows.
#include "numbers.h"

using act = stored<ACT>;
using out_type = stored<OUT>;
using weight_type = stored<WEIGHT>;

constexpr int TM = 32, TN = 64, TK = 32, THREADS = 128;  // each thread owns 4x4 outputs
constexpr int BLOCK = 32;                                // weight rows and columns that share one scale
constexpr int SCALES = (WIDTH + BLOCK - 1) / BLOCK;

[[maybe_unused]] DEVICE float widen(float v) { return v; }
[[maybe_unused]] DEVICE float widen(bf16 v) { return to_float(v); }
[[maybe_unused]] DEVICE float widen(uint8_t v) { return e4m3_to_float(v); }

// Values k..k+3 of a row, zeros past its end.
template <class T>
DEVICE void load_quad(const T* row, int k, float* out) {
  if constexpr (WIDTH % 4 == 0) {
    if (k < WIDTH) return load4(row + k, out);
    for (int i = 0; i < 4; ++i) out[i] = 0.0f;
  } else {
    for (int i = 0; i < 4; ++i) out[i] = k + i < WIDTH ? widen(row[k + i]) : 0.0f;
  }
}

// Quads of ROWS rows of WIDTH from column k0 on, transposed into tile[k][row]; rows from `limit` on are zeros.
template <int ROWS, int STRIDE, class T>
DEVICE void load_tile(const T* first, int64_t row_stride, int limit, int k0, const uint8_t* scale, int64_t scale_row,
                      float* tile) {
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear(const act* x, const weight_type* weight, const uint8_t* scale, out_type* y, int count) {
  __shared__ __align__(16) float xs[TK * (TM + 4)];
  __shared__ __align__(16) float ws[TK * (TN + 4)];
  const int m0 = blockIdx.x * TM, n0 = blockIdx.y * TN, group = blockIdx.z;
  const int m = threadIdx.x / 16 * 4, n = threadIdx.x % 16 * 4;
  const act* x_first = x + (static_cast<int64_t>(m0) * GROUPS + group) * WIDTH;
  const int64_t weight_row = static_cast<int64_t>(group) * OUTPUTS + n0;
  const bool live = m0 + m < count;
  float total[4][4] = {};
  for (int k0 = 0; k0 < WIDTH; k0 += TK) {
    load_tile<TM, TM + 4>(x_first, static_cast<int64_t>(GROUPS) * WIDTH, count - m0, k0, nullptr, 0, xs);
    load_tile<TN, TN + 4>(weight + weight_row * WIDTH, WIDTH, OUTPUTS - n0, k0, scale, weight_row, ws);
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
      if (m0 + m + i < count && n0 + n + j < OUTPUTS)
        y[((static_cast<int64_t>(m0) + m + i) * GROUPS + group) * OUTPUTS + n0 + n + j] =
            from_float<out_type>(total[i][j]);
}
