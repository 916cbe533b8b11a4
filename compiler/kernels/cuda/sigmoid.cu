// sigmoid.
#include "element.h"

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1) sigmoid(const float* x, float* out, int64_t count) {
  const int64_t at = own_element();
  if (at < count) out[at] = 1.0f / (1.0f + expf(-x[at]));
}
