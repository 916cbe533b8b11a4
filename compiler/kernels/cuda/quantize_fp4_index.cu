// quantize_fp4_index. Macros: ACT.
#include "quantize.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    quantize_fp4_index(const act* x, act* out, int64_t count) {
  quantize<32>(x, out, count, [](float v, float largest) {
    const float scale = power_of_two_at_least(__fdiv_rn(max_or_nan(largest, 0x1.8p-124f), 6.0f));
    return copysignf(__fmul_rn(round_e2m1(__fdiv_rn(fabsf(v), scale)), scale), v);
  });
}
