// Which calls of a list must wait for which: the edges of a graph, from the bytes that the calls touch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsv41c {

// Bytes [begin, end) of some memory that a call reads or writes.
struct Access {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_read = false;
  bool is_written = false;
};

// Call i waits for sources[first[i]] .. sources[first[i + 1] - 1], all before i.
struct Edges {
  std::vector<int32_t> first{0};
  std::vector<int32_t> sources;

  std::span<const int32_t> of(size_t call) const {
    return std::span(sources).subspan(static_cast<size_t>(first[call]),
                                      static_cast<size_t>(first[call + 1] - first[call]));
  }
};

// One list of accesses a call. A reader waits for the last writer of its bytes, a writer also for all readers since.
// Edges that others imply are left out.
Edges find_edges(std::span<const std::span<const Access>> calls);

}  // namespace dsv41c
