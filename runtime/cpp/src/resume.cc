// A prefix hit: what the caller says about it is checked, then the slot is placed where its replay begins.
#include <string>

#include "executor.h"
#include "upload_refusals.h"

namespace dsv41c {
namespace {

[[noreturn]] void refuse_input(const std::string& subject, const std::string& found, const std::string& needed) {
  refuse(subject, found, needed, "correct the call; no state was changed");
}

void check_ids(const char* name, const int32_t* ids, int64_t count, int64_t needed, int64_t low,
               std::optional<int64_t> end, const std::string& why) {
  if (count != needed)
    refuse_input(name, std::to_string(count) + " entries", std::to_string(needed) + " entries, " + why);
  if (count > 0 && !ids) refuse_input(name, "a null pointer", "a valid pointer");
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < low || (end && ids[i] >= *end))
      refuse_input(std::string(name) + " entry " + std::to_string(i), std::to_string(ids[i]),
                   "at least " + std::to_string(low) + (end ? " and below " + std::to_string(*end) : ""));
}

}  // namespace

void UploadCheck::check_resume(const dsv41c_resume_inputs& inputs) {
  if (!limits_.replays)
    refuse_input("resume", "a plan whose windows have no floor for a placed slot",
                 "an artifact of a model with windows and pages, compiled by this version");
  if (inputs.reserved != 0) refuse_input("resume input reserved", std::to_string(inputs.reserved), "0");
  if (inputs.slot < 0 || inputs.slot >= *limits_.slots)
    refuse_input("slot", std::to_string(inputs.slot), "at least 0 and below " + std::to_string(*limits_.slots));
  const int64_t length = inputs.prefix_length;
  if (length < 1 || length >= *limits_.positions)
    refuse_input("prefix_length", std::to_string(length),
                 "at least 2 and below " + std::to_string(*limits_.positions) + ", the positions of a slot");
  if (length % 2 != 0)
    refuse_input("prefix_length", std::to_string(length),
                 "an even number: a compressor makes one entry of each two positions, and position " +
                     std::to_string(length - 1) + " has its partner behind the prefix");
  const int64_t first = first_replayed(length);
  check_ids("tokens", inputs.tokens, inputs.num_tokens, std::min(limits_.history, first), -1, limits_.vocabulary,
            "those in front of position " + std::to_string(first) + " that its row looks back at");
  check_ids("pages", inputs.pages, inputs.num_pages, (length - 1) / *limits_.block_size + 1, 0, limits_.pages,
            "one for each " + std::to_string(*limits_.block_size) + " positions of the prefix");
  ++step_;
  for (int64_t i = 0; i < inputs.num_pages; ++i) {
    Use& use = uses_[static_cast<size_t>(inputs.pages[i])];
    if (use.step == step_)
      refuse_input("pages entry " + std::to_string(i), std::to_string(inputs.pages[i]),
                   "another page than entry " + std::to_string(use.logical));
    use = {step_, inputs.slot, i, false};
  }
}

void UploadCheck::resumed(const dsv41c_resume_inputs& inputs) {
  const auto slot = static_cast<size_t>(inputs.slot);
  prefix_[slot] = {inputs.prefix_length, true};
  high_[slot] = static_cast<int32_t>(first_replayed(inputs.prefix_length));
  if (limits_.skips_rows) gap_[slot] = 1;  // in front of the first replayed row
  for (int64_t i = 0; i < inputs.num_pages; ++i)
    sealed_[static_cast<size_t>(inputs.pages[i])] = (i + 1) * *limits_.block_size <= inputs.prefix_length;
}

void Executor::resume(const dsv41c_resume_inputs& inputs) {
  upload_check_.check_resume(inputs);
  const Limits& limits = upload_check_.limits();
  const int64_t slot = inputs.slot;
  const auto first = static_cast<int32_t>(upload_check_.first_replayed(inputs.prefix_length));
  std::vector<int32_t> pages(static_cast<size_t>(*limits.pages_per_slot), static_cast<int32_t>(*limits.pages));
  std::copy_n(inputs.pages, inputs.num_pages, pages.begin());
  std::vector<StatePart> parts = {
      {state_index("slot_position"), slot, 1, &first},
      {state_index("page_table"), slot * *limits.pages_per_slot, *limits.pages_per_slot, pages.data()}};
  const std::vector<int32_t> ring = history_ring(inputs, first);
  const auto ring_size = static_cast<int64_t>(ring.size());
  if (ring_size > 0) parts.push_back({state_index("token_ring"), slot * ring_size, ring_size, ring.data()});
  const Entered entered(*backend_);
  try {
    backend_->write_state_parts(parts);
  } catch (...) {
    backend_->drain();
    throw;
  }
  upload_check_.resumed(inputs);
}

// The slot's ring as if the tokens had just run; -1, no token, where nothing is looked up. Empty without tokens.
std::vector<int32_t> Executor::history_ring(const dsv41c_resume_inputs& inputs, int64_t first) const {
  if (inputs.num_tokens == 0) return {};
  const State& state = plan().state[static_cast<size_t>(state_index("token_ring"))];
  std::vector<int32_t> ring(static_cast<size_t>(state.sizes[1]), -1);
  for (int64_t i = 0; i < inputs.num_tokens; ++i)
    ring[static_cast<size_t>((first - inputs.num_tokens + i) % state.sizes[1])] = inputs.tokens[i];
  return ring;
}

}  // namespace dsv41c
