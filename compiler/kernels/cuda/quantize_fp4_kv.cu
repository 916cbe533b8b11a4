// quantize_fp4_kv. Macros: ACT.
#include "quantize.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    quantize_fp4_kv(const act* x, act* out, int64_t count) {
  quantize<16>(x, out, count, [](float v, float largest) {
    const float wanted = max_or_nan(__fdiv_rn(largest, 6.0f), 0x1p-9f);
    const float scale = round_e4m3(wanted > 448.0f ? 448.0f : wanted);
    const float q = __fdiv_rn(fabsf(v), scale);  // above 6 where the scale was rounded down: saturates
    return copysignf(__fmul_rn(round_e2m1(q > 6.0f ? 6.0f : q), scale), v);
  });
}
