// Ids that are given out and come back: pages and slots.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace dsv41c {

class Pool {
 public:
  explicit Pool(int64_t size) : held_(static_cast<size_t>(size)) {
    for (int64_t id = size; id-- > 0;) free_.push_back(static_cast<int32_t>(id));
  }

  int64_t size() const { return static_cast<int64_t>(held_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t used() const { return size() - free(); }

  int32_t take() {
    if (free_.empty()) throw std::logic_error("a pool gives out more than it has");
    const int32_t id = free_.back();
    free_.pop_back();
    held_[static_cast<size_t>(id)] = true;
    return id;
  }

  void give_back(int32_t id) {
    if (!held_.at(static_cast<size_t>(id))) throw std::logic_error("a pool takes back what it did not give out");
    held_[static_cast<size_t>(id)] = false;
    free_.push_back(id);
  }

 private:
  std::vector<int32_t> free_;
  std::vector<bool> held_;
};

}  // namespace dsv41c
