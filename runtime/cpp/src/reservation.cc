// Reserves memory with one mmap, and fills state.
#include "reservation.h"

#include <sys/mman.h>
#include <unistd.h>

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

// Zeros of a fresh mapping that nobody has touched take no memory: whole pages are given back to be so again.
void fill_zeros(uint8_t* at, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + static_cast<uintptr_t>(bytes);
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first >= last || ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(at, 0, static_cast<size_t>(bytes));
    return;
  }
  std::memset(at, 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

}  // namespace

// Address space only: the state is large and a process touches little of it, so pages come when they are first used.
// A machine that cannot give the addresses fails here; one that runs out of memory later is the kernel's affair.
Reservation::Reservation(const Memory& memory) : memory_(memory) {
  if (memory.total_bytes > 0) base_ = map(memory.total_bytes);
}

uint8_t* Reservation::map(int64_t bytes) {
  void* mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw Error(
        {.code = plan_format::E0701,
         .subject = "the plan's memory cannot be reserved",
         .found = "mmap of " + std::to_string(bytes) + " bytes: " + std::strerror(errno),
         .needed = std::to_string(bytes) + " bytes of memory",
         .action = "free memory, or compile with smaller --max-num-seqs, --max-model-len or --max-num-batched-tokens"});
  bytes_ += bytes;
  return static_cast<uint8_t*>(mapped);
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
    if (bits == 0) {
      fill_zeros(at, state_bytes(s));
      continue;
    }
    if (item == 1) fill(at, count, static_cast<uint8_t>(bits));
    if (item == 2) fill(at, count, static_cast<uint16_t>(bits));
    if (item == 4) fill(at, count, static_cast<uint32_t>(bits));
    if (item == 8) fill(at, count, bits);
  }
}

}  // namespace dsv41c
