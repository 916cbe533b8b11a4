// Reserves memory with one mmap, and fills state.
#include "reservation.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
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

int64_t state_bytes(const State& state) {
  int64_t bytes = item_bytes(state.dtype);
  for (int64_t size : state.sizes) bytes *= size;
  return bytes;
}

uint64_t fill_bits(const State& state) {
  switch (state.dtype) {
    case DSV41C_FLOAT32:
      return std::bit_cast<uint32_t>(static_cast<float>(state.fill));
    case DSV41C_FLOAT64:
      return std::bit_cast<uint64_t>(static_cast<double>(state.fill));
    case DSV41C_BFLOAT16:
      return std::bit_cast<uint32_t>(static_cast<float>(state.fill)) >> 16;  // exact where a bfloat16 holds the value
    case DSV41C_INT32:
      return static_cast<uint32_t>(state.fill);
    case DSV41C_INT64:
      return static_cast<uint64_t>(state.fill);
    default:
      return static_cast<uint8_t>(state.fill);  // one-byte dtypes: the byte itself
  }
}

void fill_state(const Plan& plan, uint8_t* state) {
  for (const State& s : plan.state) {
    uint8_t* at = state + s.offset;
    const int64_t item = item_bytes(s.dtype), count = state_bytes(s) / item;
    const uint64_t bits = fill_bits(s);
    if (item == 1) fill(at, count, static_cast<uint8_t>(bits));
    if (item == 2) fill(at, count, static_cast<uint16_t>(bits));
    if (item == 4) fill(at, count, static_cast<uint32_t>(bits));
    if (item == 8) fill(at, count, bits);
  }
}

}  // namespace dsv41c
