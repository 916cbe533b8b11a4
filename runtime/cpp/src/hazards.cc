// Keeps, for every range of bytes seen so far, its last writer and the readers since.
#include "hazards.h"

#include <algorithm>
#include <functional>
#include <map>

namespace dsv41c {
namespace {

class ByteHistory {
 public:
  // Appends the calls that `access` of `call` must wait for, and remembers it.
  void touch(const Access& access, int32_t call, std::vector<int32_t>& sources) {
    if (access.begin >= access.end) return;
    split(access.begin);
    split(access.end);
    uint64_t at = access.begin;
    for (auto entry = ranges_.lower_bound(at); at < access.end; ++entry) {
      if (entry == ranges_.end() || entry->first > at) {  // bytes that nobody has touched
        const uint64_t end = entry == ranges_.end() ? access.end : std::min(entry->first, access.end);
        entry = ranges_.emplace_hint(entry, at, Range{end, -1, {}});
      }
      touch_range(entry->second, access, call, sources);
      at = entry->second.end;
    }
  }

 private:
  struct Range {
    uint64_t end;
    int32_t writer;  // -1: none in this graph
    std::vector<int32_t> readers;
  };

  void touch_range(Range& range, const Access& access, int32_t call, std::vector<int32_t>& sources) {
    if (range.writer >= 0 && range.writer != call) sources.push_back(range.writer);
    if (access.is_written) {
      for (int32_t reader : range.readers)
        if (reader != call) sources.push_back(reader);
      range.readers.clear();
      range.writer = call;
    } else if (range.readers.empty() || range.readers.back() != call) {
      range.readers.push_back(call);
    }
  }

  // Makes `at` the begin of a range if it lies inside one.
  void split(uint64_t at) {
    auto entry = ranges_.upper_bound(at);
    if (entry == ranges_.begin()) return;
    --entry;
    if (entry->first == at || entry->second.end <= at) return;
    ranges_.emplace(at, entry->second);
    entry->second.end = at;
  }

  std::map<uint64_t, Range> ranges_;  // by begin, disjoint
};

// For each call the set of calls that it waits for, directly or not, as bits.
class Ancestors {
 public:
  explicit Ancestors(size_t calls) : words_((calls + 63) / 64), bits_(calls * words_) {}

  // Sorts the sources of `call`, drops those that others imply, and remembers what is left.
  void reduce(int32_t call, std::vector<int32_t>& sources) {
    std::ranges::sort(sources, std::greater<>());  // an ancestor of a source comes before it
    uint64_t* own = row(call);
    std::erase_if(sources, [&](int32_t source) {
      uint64_t& word = own[source / 64];
      const uint64_t bit = uint64_t{1} << (source % 64);
      if (word & bit) return true;
      const uint64_t* above = row(source);
      for (size_t i = 0; i < words_; ++i) own[i] |= above[i];
      word |= bit;
      return false;
    });
    std::ranges::reverse(sources);
  }

 private:
  uint64_t* row(int32_t call) { return bits_.data() + static_cast<size_t>(call) * words_; }

  size_t words_;
  std::vector<uint64_t> bits_;
};

}  // namespace

Edges find_edges(std::span<const std::span<const Access>> calls) {
  Edges edges;
  ByteHistory history;
  Ancestors ancestors(calls.size());
  std::vector<int32_t> sources;
  for (size_t i = 0; i < calls.size(); ++i) {
    sources.clear();
    const auto call = static_cast<int32_t>(i);
    for (const Access& access : calls[i]) history.touch(access, call, sources);
    ancestors.reduce(call, sources);
    edges.sources.insert(edges.sources.end(), sources.begin(), sources.end());
    edges.first.push_back(static_cast<int32_t>(edges.sources.size()));
  }
  return edges;
}

}  // namespace dsv41c
