// moe_experts, second launch: the down projections of a row, summed in the order of its choices. Macros: WIDTH, INNER,
// TOPK, EXPERTS.
#include "moe_experts.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_experts_down(const int* expert, const uint8_t* w2, const uint8_t* w2_scale, const float* inner, float* y) {
  __shared__ float staged[INNER + INNER / GROUP];
  const int64_t i = blockIdx.x;
  const int t = threadIdx.x;
  float total[TILE / WARPS] = {};
  for (int c = 0; c < TOPK; ++c) {
    const int64_t pair = i * TOPK + c;
    const int e = expert[pair];
    if (e < 0 || e >= EXPERTS) continue;
    __syncthreads();  // the choice before has been read
    stage<INNER>(inner + pair * INNER, staged);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE / WARPS; ++j)
      total[j] += dot_fp4<INNER>(staged, w2, w2_scale,
                                 static_cast<int64_t>(e) * WIDTH + blockIdx.y * TILE + j * WARPS + t / 32);
  }
#pragma unroll
  for (int j = 0; j < TILE / WARPS; ++j)
    if (t % 32 == 0) y[i * WIDTH + blockIdx.y * TILE + j * WARPS + t / 32] = total[j];
}
