// moe_experts, first launch: the activations of every (row, choice) into scratch. Macros: ACT, WIDTH, INNER, TOPK,
// EXPERTS, QUANTIZE. Time grows with rows * TOPK.
#include "activation.h"
#include "moe_experts.h"

using act = stored<ACT>;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_experts_up(const act* x, const int* expert, const float* weight, const uint8_t* w1, const uint8_t* w1_scale,
                   const uint8_t* w3, const uint8_t* w3_scale, float* inner, float limit) {
  __shared__ float staged[WIDTH + WIDTH / GROUP];
  __shared__ float activation[TILE];
  const int64_t pair = blockIdx.x;
  const int e = expert[pair], t = threadIdx.x;
  if (e < 0 || e >= EXPERTS) return;
  stage<WIDTH>(x + pair / TOPK * WIDTH, staged);
  __syncthreads();
  for (int j = t / 32; j < TILE; j += WARPS) {
    const int64_t n = static_cast<int64_t>(e) * INNER + blockIdx.y * TILE + j;
    const float gate = dot_fp4<WIDTH>(staged, w1, w1_scale, n), up = dot_fp4<WIDTH>(staged, w3, w3_scale, n);
    // The routing weight comes before the rounding and the quantizer.
    if (t % 32 == 0) activation[j] = to_float(from_float<act>(clamped_swiglu(gate, up, limit) * weight[pair]));
  }
  __syncthreads();
  if (t >= TILE) return;
  const float a = activation[t], largest = lanes_max_or_nan<TILE>(fabsf(a));
  inner[pair * INNER + blockIdx.y * TILE + t] = QUANTIZE ? quantize_fp8_value(a, largest) : a;
}
