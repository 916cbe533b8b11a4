// Resolves the bytes of tensors, and which of their rows are real.
#include "checked_effects.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reservation.h"
#include "verify_geometry.h"

namespace dsv41c {
namespace {

constexpr int64_t ANY_ROW = std::numeric_limits<int64_t>::max();

// How many elements lie next to each other, and the number of outer dimensions above them.
int64_t block_of(const dsv41c_tensor& tensor, int* outer) {
  int64_t block = 1;
  int d = tensor.ndim;
  for (; d > 0 && (tensor.sizes[d - 1] == 1 || tensor.strides[d - 1] == block); --d) block *= tensor.sizes[d - 1];
  *outer = d;
  return block;
}

void merge(std::vector<ByteRange>& ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  size_t kept = 0;
  for (const ByteRange& range : ranges)
    if (kept > 0 && range.begin <= ranges[kept - 1].end)
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    else
      ranges[kept++] = range;
  ranges.resize(kept);
}

bool is_inside(int64_t offset, const void* begin, int64_t bytes, const CheckedMemory& memory) {
  const int64_t first = memory.offset_of(begin);
  return offset >= first && offset < first + bytes;
}

}  // namespace

std::string CheckedRun::text() const { return "step " + std::to_string(step) + ", order " + std::to_string(seed); }

dsv41c_tensor CheckedPlace::tensor(int64_t value) const { return regions.tensor(method, value, rows); }

const Value& CheckedPlace::root(int64_t value) const {
  const Value* found = &method.values[static_cast<size_t>(value)];
  while (found->storage.kind == StorageKind::view) found = &method.values[static_cast<size_t>(found->storage.index)];
  return *found;
}

std::string CheckedPlace::owner(int64_t offset) const {
  const Plan& plan = *regions.plan;
  for (const State& state : plan.state)
    if (is_inside(offset, regions.state + state.offset, state_bytes(state), memory)) return "state " + state.name;
  for (size_t i = 0; i < method.values.size(); ++i) {
    const StorageKind kind = method.values[i].storage.kind;
    if (kind == StorageKind::view || kind == StorageKind::weight) continue;
    const dsv41c_tensor t = tensor(static_cast<int64_t>(i));
    if (is_inside(offset, t.data, span_bytes(t), memory)) return "the range of value " + method.values[i].name;
  }
  const std::pair<const char*, const uint8_t*> ends[] = {
      {"arena", regions.arena}, {"io", regions.io}, {"bridges", regions.bridges}, {"state", regions.state}};
  for (const auto& [name, begin] : ends)  // the last one first
    if (offset >= memory.offset_of(begin))
      return std::string(name) + " byte " + std::to_string(offset - memory.offset_of(begin)) + ", which is of no value";
  return "byte " + std::to_string(offset);
}

std::vector<ByteRange> ranges_of(const dsv41c_tensor& tensor, const CheckedMemory& memory) {
  int outer = 0;
  const int64_t item = item_bytes(tensor.dtype), block = block_of(tensor, &outer);
  std::vector<ByteRange> ranges;
  std::vector<int64_t> at(static_cast<size_t>(outer), 0);
  for (;;) {
    int64_t offset = 0;
    for (int d = 0; d < outer; ++d) offset += at[static_cast<size_t>(d)] * tensor.strides[d];
    const int64_t begin = memory.offset_of(tensor.data) + offset * item;
    ranges.push_back({begin, begin + block * item});
    int d = outer - 1;
    for (; d >= 0 && ++at[static_cast<size_t>(d)] == tensor.sizes[d]; --d) at[static_cast<size_t>(d)] = 0;
    if (d < 0) break;
  }
  merge(ranges);
  return ranges;
}

CheckedOutput::CheckedOutput(const CheckedPlace& place, const Argument& argument)
    : value_(&place.method.values[static_cast<size_t>(argument.value)]),
      root_(&place.root(argument.value)),
      is_result_(argument.kind == ArgumentKind::out),
      live_rows_(ANY_ROW) {
  const dsv41c_tensor tensor = place.tensor(argument.value);
  ranges_ = ranges_of(tensor, place.memory);
  if (is_state()) {
    place_in_state(place, place.regions.plan->state[static_cast<size_t>(root().index)]);
    return;
  }
  begin_ = place.memory.offset_of(tensor.data);
  row_bytes_ = std::max<int64_t>(span_bytes(tensor), 1);
  keeps_pads_ = value_->pads == Pads::valid;
  if (value_->sizes.empty() || !verifier::reads_symbol(value_->sizes[0], place.method.symbol)) return;
  row_bytes_ = tensor.strides[0] * item_bytes(tensor.dtype);
  growing_ = &value_->sizes[0];
  symbol_ = &place.method.symbol;
}

void CheckedOutput::place_in_state(const CheckedPlace& place, const State& state) {
  keeps_pads_ = holds_indices(state.dtype);
  begin_ = place.memory.offset_of(place.regions.state + state.offset);
  const int64_t entries = state.sizes.empty() ? 1 : state.sizes[0];
  row_bytes_ = state_bytes(state) / entries;
  live_rows_ = entries - has_trash(state, place.limits);
}

int64_t CheckedOutput::bytes() const {
  int64_t sum = 0;
  for (const ByteRange& range : ranges_) sum += range.bytes();
  return sum;
}

bool CheckedOutput::is_live(int64_t row, int64_t rows) const {
  if (!growing_) return row < live_rows_;
  return rows > 0 && row < evaluate(*growing_, {{*symbol_, rows}});
}

bool has_trash(const State& state, const Limits& limits) {
  if (state.sizes.empty()) return false;
  return (limits.slots && state.sizes[0] == *limits.slots + 1) || (limits.pages && state.sizes[0] == *limits.pages + 1);
}

bool holds_indices(int32_t dtype) { return dtype == DSV41C_INT32 || dtype == DSV41C_INT64; }

}  // namespace dsv41c
