// Checks a step's inputs before anything is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "dsv41c/executor.h"
#include "step_limits.h"

namespace dsv41c {

enum UploadColumn { SLOT, OFFSET, TOKEN, FLAGS, PAGE, NUM_UPLOAD_COLUMNS };
enum RowFlag { START = 1, IMAGE = 2 };

// Keeps one mark per slot, so that checking allocates nothing.
class UploadCheck {
 public:
  explicit UploadCheck(Limits limits) : limits_(limits), seen_(static_cast<size_t>(limits.slots.value_or(0))) {}

  const Limits& limits() const { return limits_; }
  void check(const dsv41c_step_inputs& inputs);  // E0801 names row and field

 private:
  void check_row(const int32_t* row, int64_t index) const;
  int64_t check_group(const int32_t* upload, int64_t first, int64_t num_rows);  // returns its end
  void check_page(const int32_t* row, int64_t index, int64_t position, int64_t* mapped) const;

  Limits limits_;
  std::vector<uint64_t> seen_;  // the last step that used the slot
  uint64_t step_ = 0;
};

}  // namespace dsv41c
