// rms_norm. Macros: ACT, WEIGHT, WIDTH. One block a row.
#include "reduce.h"

using act = stored<ACT>;
using weight_type = stored<WEIGHT>;

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    rms_norm(const act* x, const weight_type* weight, act* out, float eps) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * WIDTH;
  float sum[1] = {0.0f};
  for (int d = threadIdx.x; d < WIDTH; d += THREADS) sum[0] += to_float(x[first + d]) * to_float(x[first + d]);
  block_sums<THREADS, 1>(sum);
  const float scale = 1.0f / sqrtf(sum[0] / WIDTH + eps);
  for (int d = threadIdx.x; d < WIDTH; d += THREADS)
    out[first + d] = from_float<act>(to_float(x[first + d]) * scale * to_float(weight[d]));
}
