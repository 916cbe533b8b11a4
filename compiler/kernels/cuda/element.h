// Kernels with one thread an element.
#pragma once

#include "numbers.h"

constexpr int ELEMENT_THREADS = 256;

DEVICE int64_t own_element() { return static_cast<int64_t>(blockIdx.x) * ELEMENT_THREADS + threadIdx.x; }
