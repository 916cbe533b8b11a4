// Memory for launches under checks. The launches are bound to the stage, which holds nothing but a pattern and, while
// one of them runs, its own tensors; what the plan's memory really holds is kept apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsv41c {

// Bytes [begin, end) from the start of the stage.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes() const { return end - begin; }
};

class CheckedMemory {
 public:
  // Two runs of a launch differ in every bit of what is undefined: NaN of every float dtype and -1, then zeros.
  static constexpr uint8_t PATTERNS[] = {0xFF, 0x00};

  // All of it undefined.
  CheckedMemory(uint8_t* stage, int64_t bytes);

  int64_t bytes() const { return static_cast<int64_t>(real_.size()); }
  int64_t offset_of(const void* address) const { return static_cast<const uint8_t*>(address) - stage_; }

  void forget(ByteRange range);  // undefined from here on
  void write(int64_t offset, const void* data, int64_t bytes);
  void copy(int64_t to, int64_t from, int64_t bytes);  // what is undefined too
  bool is_undefined(int64_t offset) const { return undefined_[static_cast<size_t>(offset)] != 0; }

  void take(ByteRange range);     // the stage's bytes become the real ones, all of them defined
  void publish(ByteRange range);  // the other way round; what is undefined appears as the first pattern

  // One run: the pattern everywhere, then what the launch may see.
  void fill_stage(uint8_t pattern);
  bool is_filled(uint8_t pattern) const { return filled_ == pattern; }
  void show(ByteRange range, uint8_t pattern);
  // First byte that is not as show() left it, or -1.
  int64_t changed(ByteRange range, uint8_t pattern) const;
  void hide(ByteRange range, uint8_t pattern);
  // First byte of the stage that is not the pattern, or -1.
  int64_t changed(uint8_t pattern) const;
  std::span<const uint8_t> staged(ByteRange range) const {
    return {stage_ + range.begin, static_cast<size_t>(range.bytes())};
  }

 private:
  uint8_t* const stage_;
  std::vector<uint8_t> real_;
  std::vector<uint8_t> undefined_;  // 0xFF for each byte that is
  int filled_ = -1;                 // the pattern that the stage holds between runs
};

}  // namespace dsv41c
