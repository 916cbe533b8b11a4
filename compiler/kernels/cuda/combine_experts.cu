// combine_experts. Macros: SHARED (of `shared`), OUT. One thread an element.
#include "element.h"

using out_type = stored<OUT>;
using shared_type = stored<SHARED>;

extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS, 1)
    combine_experts(const float* routed, const shared_type* shared, out_type* out, int64_t count) {
  const int64_t at = own_element();
  if (at < count) out[at] = from_float<out_type>(__fadd_rn(routed[at], to_float(shared[at])));
}
