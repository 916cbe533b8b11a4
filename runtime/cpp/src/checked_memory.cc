// Byte loops over the stage; plain ones, which the compiler turns into vectors.
#include "checked_memory.h"

#include <algorithm>
#include <cstring>

namespace dsv41c {
namespace {

uint8_t shown(uint8_t real, uint8_t undefined, uint8_t pattern) {
  return static_cast<uint8_t>((real & ~undefined) | (pattern & undefined));
}

}  // namespace

CheckedMemory::CheckedMemory(uint8_t* stage, int64_t bytes)
    : stage_(stage), real_(static_cast<size_t>(bytes)), undefined_(static_cast<size_t>(bytes), 0xFF) {}

void CheckedMemory::forget(ByteRange range) {
  std::fill(undefined_.begin() + range.begin, undefined_.begin() + range.end, uint8_t{0xFF});
}

void CheckedMemory::write(int64_t offset, const void* data, int64_t bytes) {
  std::memcpy(real_.data() + offset, data, static_cast<size_t>(bytes));
  std::memset(undefined_.data() + offset, 0, static_cast<size_t>(bytes));
}

void CheckedMemory::copy(int64_t to, int64_t from, int64_t bytes) {
  for (std::vector<uint8_t>* kept : {&real_, &undefined_}) std::copy_n(kept->begin() + from, bytes, kept->begin() + to);
}

void CheckedMemory::take(ByteRange range) { write(range.begin, stage_ + range.begin, range.bytes()); }

void CheckedMemory::publish(ByteRange range) {
  filled_ = -1;
  show(range, PATTERNS[0]);
}

void CheckedMemory::fill_stage(uint8_t pattern) {
  if (is_filled(pattern)) return;
  std::memset(stage_, pattern, real_.size());
  filled_ = pattern;
}

void CheckedMemory::show(ByteRange range, uint8_t pattern) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto at = static_cast<size_t>(i);
    stage_[at] = shown(real_[at], undefined_[at], pattern);
  }
}

int64_t CheckedMemory::changed(ByteRange range, uint8_t pattern) const {
  uint8_t difference = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto at = static_cast<size_t>(i);
    difference |= stage_[at] ^ shown(real_[at], undefined_[at], pattern);
  }
  if (difference == 0) return -1;
  for (int64_t i = range.begin;; ++i) {
    const auto at = static_cast<size_t>(i);
    if (stage_[at] != shown(real_[at], undefined_[at], pattern)) return i;
  }
}

void CheckedMemory::hide(ByteRange range, uint8_t pattern) {
  std::memset(stage_ + range.begin, pattern, static_cast<size_t>(range.bytes()));
}

int64_t CheckedMemory::changed(uint8_t pattern) const {
  if (stage_[0] == pattern && std::memcmp(stage_, stage_ + 1, real_.size() - 1) == 0) return -1;
  return std::find_if(stage_, stage_ + real_.size(), [&](uint8_t byte) { return byte != pattern; }) - stage_;
}

}  // namespace dsv41c
