// What a copying kernel moves at once, by its bytes.
#pragma once

#include "numbers.h"

template <int BYTES>
struct Unit;
template <>
struct Unit<16> {
  using type = uint4;
};
template <>
struct Unit<8> {
  using type = uint2;
};
template <>
struct Unit<4> {
  using type = uint32_t;
};
template <>
struct Unit<2> {
  using type = uint16_t;
};
template <>
struct Unit<1> {
  using type = uint8_t;
};
