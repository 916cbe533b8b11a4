// The one reservation of a CPU executor: state | bridges | io | arena, at the sizes that the plan states.
#pragma once

#include <cstdint>

#include "plan.h"

namespace dsv41c {

class Reservation {
 public:
  explicit Reservation(const Memory& memory);  // E0701
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  uint8_t* state() const { return base_; }
  uint8_t* bridges() const { return state() + memory_.state_bytes; }
  uint8_t* io() const { return bridges() + memory_.bridge_bytes; }
  uint8_t* arena() const { return io() + memory_.io_bytes; }
  int64_t arena_bytes() const { return memory_.arena_bytes; }
  int64_t bytes() const { return bytes_; }  // asked of mmap

 private:
  uint8_t* map(int64_t bytes);

  Memory memory_;
  uint8_t* base_ = nullptr;
  int64_t bytes_ = 0;
};

int64_t state_bytes(const State& state);
// The bits of one element that holds the state's fill value, in the low bytes.
uint64_t fill_bits(const State& state);
// Gives all elements of every state tensor its fill value; `state` lies in a reservation.
void fill_state(const Plan& plan, uint8_t* state);

}  // namespace dsv41c
