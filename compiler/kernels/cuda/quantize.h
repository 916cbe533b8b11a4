// The launch that all quantizers share. One lane an element; `count` is a multiple of a group.
#pragma once

#include "element.h"
#include "reduce.h"

using act = stored<ACT>;

template <int GROUP, class Value>
DEVICE void quantize(const act* x, act* out, int64_t count, Value value) {
  const int64_t at = own_element();
  const float v = at < count ? to_float(x[at]) : 0.0f;  // idle lanes stay for the shuffles
  const float largest = lanes_max_or_nan<GROUP>(fabsf(v));
  if (at < count) out[at] = from_float<act>(value(v, largest));
}
