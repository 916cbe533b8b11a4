// Runs CUDA kernels on the host: every thread of a block is a fiber, barriers and shuffles switch fibers.
// A barrier that not all threads reach ends the process with a message instead of hanging.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) unsigned char* name = shim::dynamic_shared

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

namespace shim {

constexpr size_t STACK = 256 * 1024;
constexpr int WARP = 32;

struct Fiber {
  jmp_buf resume;
  ucontext_t start;
  char* stack = nullptr;
  bool started = false, done = false;
  Index3 thread;
};
struct Barrier {
  int arrived = 0, generation = 0, any = 0, last_any = 0;
};

inline std::vector<Fiber> fibers;
inline Fiber* current = nullptr;
inline jmp_buf scheduler;
inline Index3 block_index, block_size, grid_size;
inline Barrier block_barrier;
inline std::vector<Barrier> warp_barriers;
inline Barrier named_barriers[16];
inline std::vector<uint64_t> exchange;
inline long progress = 0;
inline void (*body)() = nullptr;
alignas(16) inline unsigned char dynamic_shared[256 * 1024];

inline int lane_of_block() { return static_cast<int>(current->thread.x); }

inline void yield() {
  if (!_setjmp(current->resume)) _longjmp(scheduler, 1);
}

inline bool arrive(Barrier& b, int expected) {
  if (++b.arrived != expected) return false;
  b.last_any = b.any;
  b.any = b.arrived = 0;
  ++b.generation;
  ++progress;
  return true;
}
inline int wait(Barrier& b, int expected, int predicate) {
  b.any |= predicate;
  const int generation = b.generation;
  if (!arrive(b, expected))
    while (b.generation == generation) yield();
  return b.last_any;
}
inline void wait_warp() { wait(warp_barriers[lane_of_block() / WARP], WARP, 0); }

inline void enter() {
  body();
  current->done = true;
  ++progress;
  _longjmp(scheduler, 1);
}

inline void prepare(int threads) {
  static std::vector<char*> stacks;
  while (static_cast<int>(stacks.size()) < threads) {
    void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) abort();
    stacks.push_back(static_cast<char*>(stack));
  }
  fibers.assign(threads, Fiber{});
  for (int t = 0; t < threads; ++t) {
    fibers[t].stack = stacks[t];
    fibers[t].thread.x = static_cast<unsigned>(t);
  }
  block_barrier = Barrier{};
  std::fill_n(named_barriers, 16, Barrier{});
  warp_barriers.assign((threads + WARP - 1) / WARP, Barrier{});
  exchange.assign(threads, 0);
}

inline void resume(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack;
  fiber.start.uc_stack.ss_size = STACK;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, enter, 0);
  setcontext(&fiber.start);
}

// Resumes the threads [first, first + count) once each; returns how many are left.
inline int resume_all(int first, int count) {
  int alive = 0;
  for (int t = first; t < first + count; ++t) {
    if (!fibers[t].done) resume(fibers[t]);
    alive += !fibers[t].done;
  }
  return alive;
}

// Even: all threads in turn. Skewed: from the last warp on, each warp runs as far as it can before the next one starts.
// A kernel without races gives the same bits both ways.
inline void run_block(int threads, bool skewed) {
  prepare(threads);
  for (int alive = threads; alive > 0;) {
    const long before = progress;
    alive = skewed ? 0 : resume_all(0, threads);
    for (int first = skewed ? threads - WARP : -1; first >= 0; first -= WARP) {
      long step = progress;
      int left = resume_all(first, WARP);
      for (; progress != step; left = resume_all(first, WARP)) step = progress;
      alive += left;
    }
    if (alive > 0 && progress == before) {
      fprintf(stderr, "emulation: %d of %d threads wait at a barrier that the others do not reach\n", alive, threads);
      abort();
    }
  }
}

// args[i] points at the value of parameter i, as for cuLaunchKernel.
template <class... P, size_t... I>
void run(void (*kernel)(P...), void** args, std::index_sequence<I...>, bool skewed) {
  static void (*called)(P...);
  static void** passed;
  called = kernel, passed = args;
  body = [] { called(*static_cast<P*>(passed[I])...); };
  for (unsigned z = 0; z < grid_size.z; ++z)
    for (unsigned y = 0; y < grid_size.y; ++y)
      for (unsigned x = 0; x < grid_size.x; ++x) {
        block_index.x = x, block_index.y = y, block_index.z = z;
        memset(dynamic_shared, 0xff, sizeof dynamic_shared);
        run_block(static_cast<int>(block_size.x), skewed);
      }
}
template <class... P>
void launch(void (*kernel)(P...), void** args, const unsigned* grid, unsigned threads, bool skewed) {
  grid_size.x = grid[0], grid_size.y = grid[1], grid_size.z = grid[2];
  block_size.x = threads, block_size.y = block_size.z = 1;
  run(kernel, args, std::index_sequence_for<P...>{}, skewed);
}

}  // namespace shim

#define threadIdx (shim::current->thread)
#define blockIdx (shim::block_index)
#define blockDim (shim::block_size)
#define gridDim (shim::grid_size)

inline void __syncthreads() { shim::wait(shim::block_barrier, static_cast<int>(shim::fibers.size()), 0); }
inline int __syncthreads_or(int predicate) {
  return shim::wait(shim::block_barrier, static_cast<int>(shim::fibers.size()), predicate != 0);
}
// Barriers of some of the block's threads, of which some arrive without waiting.
inline void barrier_arrive(int id, int count) { shim::arrive(shim::named_barriers[id], count); }
inline void barrier_wait(int id, int count) { shim::wait(shim::named_barriers[id], count, 0); }
inline void __syncwarp(unsigned = 0xffffffffu) { shim::wait_warp(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  const int own = shim::lane_of_block(), other = (own & ~31) | ((own ^ distance) & 31);
  shim::exchange[own] = 0;
  memcpy(&shim::exchange[own], &value, sizeof value);
  shim::wait_warp();
  T result;
  memcpy(&result, &shim::exchange[other], sizeof result);
  shim::wait_warp();
  return result;
}

inline float __uint_as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline uint32_t __float_as_uint(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
