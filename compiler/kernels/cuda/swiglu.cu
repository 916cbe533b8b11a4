// swiglu. Macros: OUT. One thread an element.
#include "activation.h"
#include "element.h"

using out_type = stored<OUT>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    swiglu(const float* gate, const float* up, out_type* out, float limit, int64_t count) {
  const int64_t at = own_element();
  if (at < count) out[at] = from_float<out_type>(clamped_swiglu(gate[at], up[at], limit));
}
