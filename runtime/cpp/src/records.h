// Decision records: what every method run of every step did, in a ring that never grows.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv41c {

enum class Reason : int8_t {
  bucket,
  above_largest_bucket,
  requested,
  bucket_launched_singly,
  split,
  split_launched_singly
};

inline bool is_eager(Reason reason) { return reason != Reason::bucket && reason != Reason::split; }
inline bool is_split(Reason reason) { return reason == Reason::split || reason == Reason::split_launched_singly; }

// Of a split behind the numbers of the part.
inline const char* reason_text(Reason reason) {
  switch (reason) {
    case Reason::bucket:
      return "bucket";
    case Reason::above_largest_bucket:
      return "above the largest bucket";
    case Reason::requested:
      return "requested";
    case Reason::bucket_launched_singly:
      return "bucket, launches one by one";
    case Reason::split:
      return " of a split";
    case Reason::split_launched_singly:
      return " of a split, launches one by one";
  }
  return "";
}

struct Record {
  double us = 0;
  int32_t method = 0;  // index in the plan
  int32_t launched_rows = 0;
  int32_t rows = 0;
  Reason reason = Reason::bucket;
  int32_t part = 0, parts = 0;  // from 1, of a split or of eager blocks
  int64_t step = 0;             // from 0 since load; drafts count for the step that verifies them
  double begin_us = 0;          // since loading began
};

class RecordRing {
 public:
  static constexpr int64_t CAPACITY = 65536;

  RecordRing() : records_(CAPACITY) {}
  void append(const Record& record) { records_[static_cast<size_t>(count_++ % CAPACITY)] = record; }
  int64_t count() const { return count_; }
  int64_t oldest() const { return count_ > CAPACITY ? count_ - CAPACITY : 0; }
  const Record& at(int64_t index) const { return records_[static_cast<size_t>(index % CAPACITY)]; }

 private:
  std::vector<Record> records_;
  int64_t count_ = 0;
};

}  // namespace dsv41c
