// quantize_fp8, quantize_fp4_index, quantize_fp4_kv. Macros: ACT. One lane an element; `count` is a multiple of a group.
#include "reduce.h"

template <int GROUP, class Value>
DEVICE void quantize(const ACT* x, ACT* out, int64_t count, Value value) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const float v = at < count ? to_float(x[at]) : 0.0f;  // idle lanes stay for the shuffles
  const float largest = lanes_max_or_nan<GROUP>(fabsf(v));
  if (at < count) out[at] = from_float<ACT>(value(v, largest));
}

extern "C" __global__ void quantize_fp8(const ACT* x, ACT* out, int64_t count) {
  quantize<32>(x, out, count, [](float v, float largest) { return quantize_fp8_value(v, largest); });
}

extern "C" __global__ void quantize_fp4_index(const ACT* x, ACT* out, int64_t count) {
  quantize<32>(x, out, count, [](float v, float largest) {
    const float scale = power_of_two_at_least(__fdiv_rn(max_or_nan(largest, 0x1.8p-124f), 6.0f));
    return copysignf(__fmul_rn(round_e2m1(__fdiv_rn(fabsf(v), scale)), scale), v);
  });
}

extern "C" __global__ void quantize_fp4_kv(const ACT* x, ACT* out, int64_t count) {
  quantize<16>(x, out, count, [](float v, float largest) {
    const float wanted = max_or_nan(__fdiv_rn(largest, 6.0f), 0x1p-9f);
    const float scale = round_e4m3(wanted > 448.0f ? 448.0f : wanted);
    const float q = __fdiv_rn(fabsf(v), scale);  // above 6 where the scale was rounded down: saturates
    return copysignf(__fmul_rn(round_e2m1(q > 6.0f ? 6.0f : q), scale), v);
  });
}
