#include "cuda/upload_ring.h"

#include <algorithm>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::cuda {

PinnedMemory pin(const Driver& driver, int64_t bytes) {
  void* memory = nullptr;
  const Result result = driver.pinned_allocate.address(&memory, static_cast<size_t>(bytes), 0);
  if (result == SUCCESS) return {driver, memory};
  throw Error({.code = plan_format::E0701,
               .subject = "host memory for copies cannot be pinned",
               .found = driver.describe(driver.pinned_allocate.name, result),
               .needed = std::to_string(bytes) + " bytes of pinned memory",
               .action = "free memory, raise the limit on locked memory, or compile with smaller bounds"});
}

UploadRing::UploadRing(const Driver& driver, int64_t slot_bytes) : slot_bytes_(std::max<int64_t>(slot_bytes, 64)) {
  for (Slot& slot : slots_) {
    slot.memory = pin(driver, slot_bytes_);
    slot.copied = make_event(driver, EVENT_DISABLE_TIMING);
  }
}

void UploadRing::next(const Driver& driver) {
  current_ = (current_ + 1) % NUM_SLOTS;
  if (slots_[current_].is_sent) driver.call(driver.event_synchronize, slots_[current_].copied.get());
}

void UploadRing::sent(const Driver& driver, StreamHandle stream) {
  driver.call(driver.event_record, slots_[current_].copied.get(), stream);
  slots_[current_].is_sent = true;
}

}  // namespace dsv41c::cuda
