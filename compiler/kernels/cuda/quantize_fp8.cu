// quantize_fp8. Macros: ACT.
#include "quantize.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1) quantize_fp8(const act* x, act* out, int64_t count) {
  quantize<32>(x, out, count, [](float v, float largest) { return quantize_fp8_value(v, largest); });
}
