// Pinned copies of a step's inputs: two slots, so that the host fills one while the device still copies the other.
#pragma once

#include "cuda/handles.h"

namespace dsv41c::cuda {

class UploadRing {
 public:
  UploadRing(const Driver& driver, int64_t slot_bytes);

  // The next slot, once the copies out of it have run.
  void next(const Driver& driver);
  uint8_t* slot() const { return static_cast<uint8_t*>(slots_[current_].memory.get()); }
  // The copies out of the slot have been enqueued.
  void sent(const Driver& driver, StreamHandle stream);
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t bytes() const { return NUM_SLOTS * slot_bytes_; }

 private:
  static constexpr size_t NUM_SLOTS = 2;
  struct Slot {
    PinnedMemory memory;
    Event copied;
    bool is_sent = false;
  };
  Slot slots_[NUM_SLOTS];
  size_t current_ = 0;
  int64_t slot_bytes_;
};

// E0701 when the host cannot pin so many bytes.
PinnedMemory pin(const Driver& driver, int64_t bytes);

}  // namespace dsv41c::cuda
