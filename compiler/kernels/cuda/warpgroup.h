// Products of tiles in shared memory by one warpgroup, and the barriers between warpgroups.
//
// A tile is 64 rows of 64 bf16 in 128 bytes each; 16-byte chunk c of row r lies at place c ^ (r % 8). A thread of the
// 128 holds of a 64 x N sum, for each 8 columns j: sum[4j], [4j+1] row own_row(), [4j+2], [4j+3] row own_row() + 8,
// columns 8j + own_column() and the next.
#pragma once

#include "numbers.h"

constexpr int TILE = 64 * 128;  // bytes

DEVICE int chunk_at(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }
DEVICE int own_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }
DEVICE int own_column() { return threadIdx.x % 4 * 2; }

#ifdef __CUDACC__

DEVICE uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Matrix descriptors: address, bytes between tiles side by side, bytes between groups of 8 rows, 128-byte swizzle.
DEVICE uint64_t described(uint32_t address, uint64_t stride) {
  return (address & 0x3ffffu) >> 4 | stride >> 4 << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// 64 x 64 sums of 16 products each; both sides lie row by row.
DEVICE void mma64(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(accumulate));
}
// 64 x 128 sums of 16 products each; the second side lies column by column.
DEVICE void mma128(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 1; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(accumulate));
}

DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int N>
DEVICE void end_products(float (&d)[N]) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
DEVICE void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// s = a b^T over TILES tiles side by side.
template <int TILES>
DEVICE void product_of_rows(float (&s)[32], const uint8_t* a, const uint8_t* b) {
  const uint64_t first = described(shared_address(a), 16), second = described(shared_address(b), 16);
  pin(s);
  begin_products();
#pragma unroll
  for (int i = 0; i < TILES * 4; ++i) {
    const int at = (i / 4 * TILE + i % 4 * 32) >> 4;
    mma64(s, first + at, second + at, i);
  }
  end_products(s);
}
// left += p v[:, :128], right += p v[:, 128:256]: p one tile, v four side by side.
DEVICE void add_products(float (&left)[64], float (&right)[64], const uint8_t* p, const uint8_t* v) {
  const uint64_t weights = described(shared_address(p), 16), values = described(shared_address(v), TILE);
  pin(left), pin(right);
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k) mma128(left, weights + k * 2, values + (k * 2048 >> 4), 1);
#pragma unroll
  for (int k = 0; k < 4; ++k) mma128(right, weights + k * 2, values + ((k * 2048 + 2 * TILE) >> 4), 1);
  end_products(left);
  pin(right);
}

#else  // no warpgroup products: each warp multiplies its own 16 rows

DEVICE void mma16(float* d, const uint32_t (&a)[4], uint32_t low, uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}
DEVICE uint32_t pair_at(const uint8_t* tile, int row, int column) {
  return *reinterpret_cast<const uint32_t*>(tile + chunk_at(row, column / 8) + column % 8 * 2);
}
DEVICE uint32_t number_at(const uint8_t* tile, int row, int column) {
  return *reinterpret_cast<const uint16_t*>(tile + chunk_at(row, column / 8) + column % 8 * 2);
}
// The warp's 16 rows and 16 columns from k on.
DEVICE void read_rows(uint32_t (&a)[4], const uint8_t* tile, int k) {
  for (int i = 0; i < 4; ++i) a[i] = pair_at(tile, own_row() + i % 2 * 8, k + own_column() + i / 2 * 8);
}
template <int TILES>
DEVICE void product_of_rows(float (&s)[32], const uint8_t* a, const uint8_t* b) {
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] = 0.0f;
  for (int step = 0; step < TILES * 4; ++step) {
    const int tile = step / 4 * TILE, k = step % 4 * 16;
    uint32_t rows[4];
    read_rows(rows, a + tile, k);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int n = 8 * j + threadIdx.x % 32 / 4;
      mma16(s + 4 * j, rows, pair_at(b + tile, n, k + own_column()), pair_at(b + tile, n, k + own_column() + 8));
    }
  }
}
DEVICE void add_half(float (&d)[64], const uint32_t (&p)[4], const uint8_t* v, int k) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const uint8_t* tile = v + j / 8 * TILE;
    const int n = j % 8 * 8 + threadIdx.x % 32 / 4, row = k + own_column();
    mma16(d + 4 * j, p, number_at(tile, row, n) | number_at(tile, row + 1, n) << 16,
          number_at(tile, row + 8, n) | number_at(tile, row + 9, n) << 16);
  }
}
DEVICE void add_products(float (&left)[64], float (&right)[64], const uint8_t* p, const uint8_t* v) {
  for (int k = 0; k < 64; k += 16) {
    uint32_t weights[4];
    read_rows(weights, p, k);
    add_half(left, weights, v, k);
    add_half(right, weights, v + 2 * TILE, k);
  }
}

#endif

// Of the `count` threads of barrier `id` some arrive and go on, the others wait until all have arrived.
DEVICE void barrier_arrive(int id, int count) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"); }
DEVICE void barrier_wait(int id, int count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }
// What this thread wrote to shared memory is seen by products that start behind the next barrier.
DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int REGISTERS>
DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
// The first address from p on that tiles may start at; p has 1024 bytes to spare.
DEVICE uint8_t* tiles_from(uint8_t* p) { return p + (-shared_address(p) & 1023u); }

DEVICE uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
DEVICE uint32_t pair_of(float a, float b) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
DEVICE float power_of_two(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

#else  // the host emulation of the tests

DEVICE float element(const uint8_t* tile, int row, int column) {
  return to_float(*reinterpret_cast<const bf16*>(tile + chunk_at(row, column / 8) + column % 8 * 2));
}
DEVICE int row_of(int i) { return own_row() + i % 4 / 2 * 8; }
DEVICE int column_of(int i) { return i / 4 * 8 + own_column() + i % 2; }

template <int TILES>
DEVICE void product_of_rows(float (&s)[32], const uint8_t* a, const uint8_t* b) {
  for (int i = 0; i < 32; ++i) {
    s[i] = 0.0f;
    for (int k = 0; k < TILES * 64; ++k)
      s[i] += element(a + k / 64 * TILE, row_of(i), k % 64) * element(b + k / 64 * TILE, column_of(i), k % 64);
  }
}
DEVICE void add_products(float (&left)[64], float (&right)[64], const uint8_t* p, const uint8_t* v) {
  for (int i = 0; i < 64; ++i)
    for (int k = 0; k < 64; ++k) {
      const float weight = element(p, row_of(i), k);
      const int tile = column_of(i) / 64, column = column_of(i) % 64;
      left[i] += weight * element(v + tile * TILE, k, column);
      right[i] += weight * element(v + (2 + tile) * TILE, k, column);
    }
}
DEVICE void publish() {}
template <int REGISTERS>
DEVICE void take_registers() {}
template <int REGISTERS>
DEVICE void give_registers() {}
DEVICE uint8_t* tiles_from(uint8_t* p) { return p; }
DEVICE uint32_t pair_of(float a, float b) {
  return from_float<bf16>(a).bits | static_cast<uint32_t>(from_float<bf16>(b).bits) << 16;
}
DEVICE uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  return pair_of(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                 __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u));
}
DEVICE float power_of_two(float v) { return exp2f(v); }

#endif
