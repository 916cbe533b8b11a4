// The clamped SwiGLU that routed and shared experts have in common.
#pragma once

#include <cmath>

namespace dsv41c::cpu {

// silu(min(gate, limit)) * clip(up, -limit, limit); NaN passes through.
inline float clamped_swiglu(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return gate / (1.0f + expf(-gate)) * up;
}

}  // namespace dsv41c::cpu
