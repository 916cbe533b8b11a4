// Counts the heap allocations of this library.
#pragma once

#include <cstdint>

namespace dsv41c {

int64_t heap_allocations();

}  // namespace dsv41c
