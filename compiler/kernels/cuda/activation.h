// The clamped SwiGLU of the routed and the shared experts.
#pragma once

#include "numbers.h"

// silu(min(gate, limit)) * clip(up, -limit, limit); NaN passes through.
DEVICE float clamped_swiglu(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return gate / (1.0f + expf(-gate)) * up;
}
