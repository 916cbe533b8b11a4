// One step on CUDA: inputs through the pinned ring, outputs and state back to the host.
#include <algorithm>
#include <cstring>

#include "cuda/cuda_backend.h"
#include "reservation.h"

namespace dsv41c::cuda {

void CudaBackend::synchronize() { driver_.call(driver_.stream_synchronize, stream()); }

void CudaBackend::drain() noexcept {
  const CurrentForRelease current(context_);
  driver_.stream_synchronize.address(stream());
}

void CudaBackend::begin_step() { resources_->ring->next(driver_); }

void CudaBackend::poison(int32_t byte) {
  if (plan().memory.arena_bytes > 0)
    driver_.call(driver_.fill_8, reinterpret_cast<Address>(regions_.arena), static_cast<unsigned char>(byte),
                 static_cast<size_t>(plan().memory.arena_bytes), stream());
}

void CudaBackend::write_input(const InputPort& port, const int32_t* list, const InputRows& rows) {
  // Behind what earlier runs of the step have staged: the device may not have copied that yet.
  auto* staged = reinterpret_cast<int32_t*>(resources_->ring->slot() + port.staging) + rows.staged * port.columns();
  port.fill(staged, list, rows);
  driver_.call(driver_.copy_in_async, reinterpret_cast<Address>(port.data), static_cast<const void*>(staged),
               static_cast<size_t>(rows.launched * port.columns()) * sizeof(int32_t), stream());
}

void CudaBackend::copy_rows(uint8_t* to, const uint8_t* from, int64_t bytes) {
  driver_.call(driver_.copy_async, reinterpret_cast<Address>(to), reinterpret_cast<Address>(from),
               static_cast<size_t>(bytes), stream());
}

void CudaBackend::inputs_written() { resources_->ring->sent(driver_, stream()); }

void CudaBackend::step_enqueued(const dsv41c_step_inputs& inputs, const Limits& limits) {
  mirror_.apply(inputs, limits);
}

void CudaBackend::fill_state() {
  for (const State& state : plan().state) fill_tensor(state);
  mirror_.fill();
}

void CudaBackend::fill_tensor(const State& state) {
  const auto address = reinterpret_cast<Address>(regions_.state + state.offset);
  const int64_t item = item_bytes(state.dtype);
  const auto count = static_cast<size_t>(state_bytes(state) / item);
  const uint64_t bits = fill_bits(state);
  if (item == 1) driver_.call(driver_.fill_8, address, static_cast<unsigned char>(bits), count, stream());
  if (item == 2) driver_.call(driver_.fill_16, address, static_cast<unsigned short>(bits), count, stream());
  if (item == 4) driver_.call(driver_.fill_32, address, static_cast<unsigned>(bits), count, stream());
  if (item == 8)  // the low words of all elements, then the high ones
    for (unsigned half = 0; half < 2; ++half)
      driver_.call(driver_.fill_32_strided, address + 4 * half, size_t{8}, static_cast<unsigned>(bits >> (32 * half)),
                   size_t{1}, count, stream());
}

void* CudaBackend::read_output(const std::string& name, const dsv41c_tensor& tensor) {
  const int64_t bytes = span_bytes(tensor);
  Resources::Output& output = resources_->outputs[name];
  if (output.bytes < bytes) {
    synchronize();  // nothing may be on its way into the memory that is released
    const int64_t larger = std::max(bytes, 2 * output.bytes);
    output = {pin(driver_, larger), larger};
  }
  if (bytes > 0)
    driver_.call(driver_.copy_out_async, output.memory.get(), reinterpret_cast<Address>(tensor.data),
                 static_cast<size_t>(bytes), stream());
  synchronize();
  return output.memory.get();
}

void* CudaBackend::read_state(int64_t index) {
  const State& state = plan().state[static_cast<size_t>(index)];
  std::vector<uint8_t>& copy = states_[index];
  copy.resize(static_cast<size_t>(state_bytes(state)));
  driver_.call(driver_.copy_out_async, static_cast<void*>(copy.data()),
               reinterpret_cast<Address>(regions_.state + state.offset), copy.size(), stream());
  synchronize();
  return copy.data();
}

void CudaBackend::write_state(int64_t index, const void* data) {
  const State& state = plan().state[static_cast<size_t>(index)];
  driver_.call(driver_.copy_in_async, reinterpret_cast<Address>(regions_.state + state.offset), data,
               static_cast<size_t>(state_bytes(state)), stream());
  synchronize();
  mirror_.write(state.name, data);
}

// Through the ring, all parts in one turn where they fit: a second one might wait for the step before.
void CudaBackend::write_state_parts(std::span<const StatePart> parts) {
  UploadRing& ring = *resources_->ring;
  int64_t used = ring.slot_bytes();
  bool has_turn = false;
  for (const StatePart& part : parts) {
    const State& state = plan().state[static_cast<size_t>(part.index)];
    const int64_t item = item_bytes(state.dtype), bytes = part.count * item;
    const auto to = reinterpret_cast<Address>(regions_.state + state.offset + part.first * item);
    for (int64_t done = 0; done < bytes;) {
      if (used == ring.slot_bytes()) {
        if (has_turn) ring.sent(driver_, stream());
        ring.next(driver_);
        has_turn = true;
        used = 0;
      }
      const int64_t piece = std::min(bytes - done, ring.slot_bytes() - used);
      std::memcpy(ring.slot() + used, static_cast<const uint8_t*>(part.data) + done, static_cast<size_t>(piece));
      driver_.call(driver_.copy_in_async, to + static_cast<Address>(done), static_cast<const void*>(ring.slot() + used),
                   static_cast<size_t>(piece), stream());
      done += piece;
      used += piece;
    }
    mirror_.write_part(state.name, part.first, part.count, part.data);
  }
  if (has_turn) ring.sent(driver_, stream());
}

}  // namespace dsv41c::cuda
