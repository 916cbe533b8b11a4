// Reserves the executor's memory with one mmap.
#include "reservation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

template <class T>
void fill(uint8_t* at, int64_t count, T value) {
  std::fill_n(reinterpret_cast<T*>(at), count, value);
}

// Fill values are integers; as bfloat16 only those are exact that float32's upper half holds.
uint16_t bfloat16_bits(int64_t value) {
  const float real = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &real, 4);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

Reservation::Reservation(const Memory& memory) : memory_(memory), bytes_(memory.total_bytes) {
  if (bytes_ == 0) return;
  // Populated at once, so that a machine without the memory fails here and not inside a step.
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED)
    throw Error(
        {.code = plan_format::E0701,
         .subject = "the plan's memory cannot be reserved",
         .found = "mmap of " + std::to_string(bytes_) + " bytes: " + std::strerror(errno),
         .needed = std::to_string(bytes_) + " bytes of memory",
         .action = "free memory, or compile with smaller --max-num-seqs, --max-model-len or --max-num-batched-tokens"});
  base_ = static_cast<uint8_t*>(mapped);
}

Reservation::~Reservation() {
  if (base_) ::munmap(base_, static_cast<size_t>(bytes_));
}

void fill_state(const Plan& plan, uint8_t* state) {
  for (const State& s : plan.state) {
    int64_t count = 1;
    for (int64_t size : s.sizes) count *= size;
    uint8_t* at = state + s.offset;
    switch (s.dtype) {
      case DSV41C_FLOAT32:
        fill(at, count, static_cast<float>(s.fill));
        break;
      case DSV41C_FLOAT64:
        fill(at, count, static_cast<double>(s.fill));
        break;
      case DSV41C_BFLOAT16:
        fill(at, count, bfloat16_bits(s.fill));
        break;
      case DSV41C_INT32:
        fill(at, count, static_cast<int32_t>(s.fill));
        break;
      case DSV41C_INT64:
        fill(at, count, s.fill);
        break;
      default:
        fill(at, count, static_cast<uint8_t>(s.fill));
        break;  // one-byte dtypes: the byte itself
    }
  }
}

}  // namespace dsv41c
