// The kernels of the toy plans (tests/unit/runtime/cuda/cuda_plan.py) for a real device; fake_kernels.cc has the others.
#include <cstdint>

extern "C" __global__ void __launch_bounds__(32, 1) test_rows(const int* upload, int* position, int* pages, float* x,
                                                              int rows, int width, int block) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  for (int r = 0; r < rows; ++r) {
    const int* row = upload + 5 * r;
    x[r] = static_cast<float>(row[2]);
    if (row[3] & 4) continue;
    if (row[1] == 0 && (row[3] & 1)) position[row[0]] = 0;
    const int here = position[row[0]]++;
    if (row[4] >= 0) pages[row[0] * width + here / block] = row[4];
  }
}

extern "C" __global__ void __launch_bounds__(32, 1) test_add(const float* a, const float* b, float* out, int64_t n) {
  for (int64_t i = threadIdx.x; blockIdx.x == 0 && i < n; i += 32) out[i] = a[i] + (b ? b[i] : 1000.0f);
}

extern "C" __global__ void __launch_bounds__(32, 1) test_scale(const float* in, float* out, int n, float factor) {
  for (int i = threadIdx.x; blockIdx.x == 0 && i < n; i += 32) out[i] = in[i] * factor;
}

extern "C" __global__ void __launch_bounds__(32, 1) test_count(int* state, int n) {
  for (int i = threadIdx.x; i < n; i += 32) state[i] += 1;
}

extern "C" __global__ void __launch_bounds__(32, 1) test_head(const float* in, const float* weight, float* logits,
                                                              int rows, int columns) {
  for (int i = threadIdx.x; blockIdx.x == 0 && i < rows * columns; i += 32)
    logits[i] = in[i / columns] * weight[i % columns];
}

// Reads 4 elements at a time through the map; where it ends, zeros come.
struct alignas(128) Map {
  char opaque[128];
};
extern "C" __global__ void __launch_bounds__(32, 1) test_mapped(const __grid_constant__ Map map, float* out, int64_t n) {
  __shared__ alignas(128) float box[4];
  __shared__ alignas(8) uint64_t arrived;
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const auto shared = [](const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&arrived)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  for (int64_t i = 0; i < n; i += 4) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(shared(&arrived)) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
            shared(box)),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(static_cast<int>(i)), "r"(shared(&arrived))
        : "memory");
    for (unsigned done = 0; !done;)
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(shared(&arrived)), "r"(static_cast<unsigned>(i / 4 % 2))
          : "memory");
    for (int e = 0; e < 4 && i + e < n; ++e) out[i + e] = box[e];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
}
