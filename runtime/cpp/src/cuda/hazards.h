// Which calls of a list must wait for which: the edges of a graph, from the bytes that the calls touch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/kernel_call.h"

namespace dsv41c::cuda {

// Call i waits for sources[first[i]] .. sources[first[i + 1] - 1], all before i.
struct Edges {
  std::vector<int32_t> first{0};
  std::vector<int32_t> sources;

  std::span<const int32_t> of(size_t call) const {
    return std::span(sources).subspan(static_cast<size_t>(first[call]),
                                      static_cast<size_t>(first[call + 1] - first[call]));
  }
};

// A reader waits for the last writer of its bytes, a writer also for all readers since. Edges that others imply are
// left out.
Edges find_edges(std::span<const KernelCall> calls);

}  // namespace dsv41c::cuda
