// Checks a step's inputs before anything is touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dsv41c/executor.h"
#include "step_limits.h"

namespace dsv41c {

enum UploadColumn { SLOT, OFFSET, TOKEN, FLAGS, PAGE, NUM_UPLOAD_COLUMNS };
enum RowFlag { START = 1, IMAGE = 2, FLOOR = 8, REPLAY = 16, HIT = 32 };

// Keeps one mark per slot and page, so that checking allocates nothing.
class UploadCheck {
 public:
  explicit UploadCheck(Limits limits);

  const Limits& limits() const { return limits_; }
  void check(const dsv41c_step_inputs& inputs);                 // E0801 names row and field
  void enqueued(const dsv41c_step_inputs& inputs);              // the checked step runs
  void check_draft(const int32_t* upload, int64_t num_groups);  // E0801 names row and field
  void check_resume(const dsv41c_resume_inputs& inputs);        // E0801 names the input
  void resumed(const dsv41c_resume_inputs& inputs);             // as checked
  int64_t first_replayed(int64_t prefix_length) const { return std::max<int64_t>(prefix_length - limits_.window, 0); }
  // E0801 where a slot cannot forget its positions from `lengths` on: what its rings held before was overwritten.
  void check_rollback(const int32_t* slots, const int32_t* lengths, int64_t count);
  void rolled_back(const int32_t* slots, const int32_t* lengths, int64_t count);  // as checked
  void forget_steps();  // the host has written the state, and answers for it
  void place_slots();   // and positions: nothing is known to have been written beyond them
  // E0801 where steps could not run on these contents of a state tensor.
  void check_written(const State& state, const void* data) const;

 private:
  // The rows of one slot, and where the walk over them is.
  struct Group {
    int64_t slot;
    bool starts;
    int64_t base;
    int64_t prefix = 0;      // positions below it are replayed
    bool is_placed = false;  // no row has run since
    int64_t logical = -1;    // logical page of the last row
    int64_t page = -1;       // the page that holds it
    bool writes = false;     // the last row stores into it
  };
  struct Use {
    uint64_t step = 0;
    int64_t slot = 0;  // or SEVERAL, which read
    int64_t logical = 0;
    bool writes = false;
  };
  struct Prefix {
    int64_t length = 0;
    bool is_placed = false;
  };
  static constexpr int64_t SEVERAL = -1;

  void check_row(const int32_t* row, int64_t index) const;
  int64_t check_group(const int32_t* upload, int64_t first, int64_t num_rows);  // returns its end
  int64_t base_of(const int32_t* head, int64_t first) const;
  void check_replay(const int32_t* row, int64_t index, int64_t position, const Group& group) const;
  void check_page(const int32_t* row, int64_t index, int64_t position, Group& group);
  void check_kept(const dsv41c_step_inputs& inputs) const;
  void mark_slot(int64_t row, int32_t slot, const char* needed);
  void note_kept(const dsv41c_step_inputs& inputs, int64_t first, int64_t end, int64_t* next);
  void note_pages(const dsv41c_step_inputs& inputs, int64_t first, int64_t end);
  int64_t page_before(int64_t index, int64_t position, const Group& group) const;

  Limits limits_;
  std::vector<uint64_t> seen_;      // the last step that used the slot
  std::vector<Use> uses_;           // the last use of each page
  std::vector<int32_t> high_;       // of each slot: the most positions it has held since it started or was placed
  std::vector<uint8_t> gap_;        // of each slot: its last rows were not kept
  std::vector<int32_t> kept_from_;  // of each slot: the first position of the rows that were kept last
  std::vector<Prefix> prefix_;      // of each slot: the hit that it was placed behind
  std::vector<uint8_t> sealed_;     // of each page: a placed prefix fills it, and no row has mapped it since
  uint64_t step_ = 0;
};

}  // namespace dsv41c
