// Rules of sequence bodies: each part is checked as a launch is, on locals in place of values.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

// One walk over a sequence at one number of rows.
class SequenceRules {
 public:
  SequenceRules(const Plan& plan, const std::vector<KernelFacts>& known, KernelFacts& facts, int64_t rows)
      : plan_(plan),
        known_(known),
        kernel_(plan.kernels[known.size()]),
        place_("kernel " + std::to_string(known.size()) + " " + kernel_.op),
        facts_(facts),
        rows_(rows),
        scratch_bytes_(facts.scratch_bytes.at(rows)),
        symbols_{{std::string(plan_format::ROWS), rows}} {}

  void check() {
    if (kernel_.parts.empty()) broken("body without parts", place_, "0", "at least 1 part");
    for (const Local& local : kernel_.locals) place(local);
    for (size_t i = 0; i < kernel_.parts.size(); ++i) check_part(kernel_.parts[i], static_cast<int64_t>(i));
    std::vector<Lifetime> lives;
    for (const auto& [root, life] : lives_) lives.push_back(life);
    lives.insert(lives.end(), scratches_.begin(), scratches_.end());
    check_disjoint_lives(std::move(lives));
  }

 private:
  std::string local_place(int64_t index) const { return place_ + ", local " + std::to_string(index); }
  std::string part_place(int64_t part) const {
    return place_ + ", part " + std::to_string(part) + " " + plan_.kernels[kernel_.parts[part].kernel].op;
  }
  // Of a local, or, counted down from -1, of the scratch of a part.
  static std::string place_of_life(const void* owner, int64_t number) {
    const auto* self = static_cast<const SequenceRules*>(owner);
    return number >= 0 ? self->local_place(number) : self->part_place(-1 - number) + ", scratch";
  }

  // A local becomes a tensor of a launch: few dimensions, and a temporary is placed as an arena value is.
  void place(const Local& local) {
    const auto where = [&] { return local_place(static_cast<int64_t>(placed_.size())); };
    if (local.sizes.size() > static_cast<size_t>(plan_format::MAX_DIMS))
      broken("too many dimensions", where, std::to_string(local.sizes.size()),
             "at most " + std::to_string(plan_format::MAX_DIMS));
    const PlacedLocal placed = place_local(local, placed_, symbols_, scratch_bytes_, where);
    if (local.kind == LocalKind::temp) {
      const Shape shape = shape_at(local.sizes, local.strides, local.dtype, symbols_, where);
      if (!shape.is_contiguous())
        broken("strides are not contiguous", where, numbers(shape.strides) + " for " + numbers(shape.sizes),
               "contiguous strides outside views");
      check_offset(placed.bytes.begin, plan_format::ALIGNMENT, where);
    }
    placed_.push_back(placed);
    note_argument(local, placed, rows_, facts_);
  }

  void check_part(const Part& part, int64_t number) {
    const auto unnamed = [&] { return place_ + ", part " + std::to_string(number); };
    check_index(part.kernel, known_.size(), "kernel", unnamed);
    const Kernel& kernel = plan_.kernels[part.kernel];
    const auto text = [&] { return part_place(number); };
    const Where where(text);
    if (kernel.kind == BodyKind::sequence)
      broken("sequence inside a sequence", where, "kernel " + std::to_string(part.kernel), "a kernel of another kind");
    for (const Argument& argument : part.tensors)
      if (argument.kind != ArgumentKind::none) check_index(argument.value, kernel_.locals.size(), "local", where);
    const Range scratch = scratch_of(part, where);
    check_overlaps(part, where);
    const auto operand = [&](int64_t local) { return Operand{kernel_.locals[local].dtype, {placed_[local].bytes}}; };
    check_arguments(part.tensors, known_[part.kernel], {rows_}, std::string(plan_format::ROWS), operand, where);
    if (kernel.kind == BodyKind::cuda) {
      check_cuda_arguments(kernel, part.tensors, {rows_}, std::string(plan_format::ROWS), operand, where);
      note_alignments(kernel, part);
    }
    read_and_write(part, where);
    note_lives(part, scratch, number);
  }

  // Where an argument lies is known at the launch only: it must begin as its strictest tensor map needs.
  void note_alignments(const Kernel& kernel, const Part& part) {
    for (const CudaLaunch& node : kernel.launches)
      for (const Param& param : node.params) {
        if (param.kind != ParamKind::tensor_map || !param.is_tensor()) continue;
        const Local& root = kernel_.locals[placed_[part.tensors[param.tensor].value].root];
        if (root.kind != LocalKind::arg) continue;
        int64_t& alignment = facts_.alignments[root.index];
        alignment = std::max(alignment, map_alignment(param.map));
      }
  }

  Range scratch_of(const Part& part, const Where& where) const {
    const int64_t offset = evaluate_extent(part.scratch, symbols_, where);
    check_offset(offset, plan_format::ALIGNMENT, where);
    const int64_t needed = known_[part.kernel].scratch_bytes.at(rows_);
    if (needed > scratch_bytes_ - offset)
      broken("scratch of a part outside the scratch", where,
             std::to_string(needed) + " bytes at " + std::to_string(offset),
             "an end of at most " + std::to_string(scratch_bytes_));
    return {Region::scratch, 0, offset, offset + needed};
  }

  // Two arguments of the sequence share no byte where one is written: that is a rule of its launch.
  void check_overlaps(const Part& part, const Where& where) const {
    for (size_t i = 0; i < part.tensors.size(); ++i)
      for (size_t j = i + 1; j < part.tensors.size(); ++j) {
        const Argument &first = part.tensors[i], &second = part.tensors[j];
        if (first.kind == ArgumentKind::none || second.kind == ArgumentKind::none) continue;
        const Range &left = placed_[first.value].bytes, &right = placed_[second.value].bytes;
        if ((writes(first) || writes(second)) && left.overlaps(right))
          broken("written tensor overlaps another", where,
                 "local " + std::to_string(first.value) + " at " + left.text(),
                 "no byte of local " + std::to_string(second.value) + " at " + right.text());
      }
  }

  // A part reads before it writes.
  void read_and_write(const Part& part, const Where& where) {
    for (const Argument& argument : part.tensors) {
      if (argument.kind == ArgumentKind::none || argument.kind == ArgumentKind::out) continue;
      const int64_t owner = placed_[argument.value].root;
      const Local& root = kernel_.locals[owner];
      if (root.kind == LocalKind::temp && !written_.contains(owner))
        broken("temporary is read before it is written", where, "local " + std::to_string(argument.value),
               "an earlier part that writes it");
      if (root.kind == LocalKind::arg && !facts_.written.contains(root.index)) facts_.read_first.insert(root.index);
    }
    for (const Argument& argument : part.tensors) {
      if (!writes(argument)) continue;
      const int64_t owner = placed_[argument.value].root;
      written_.insert(owner);
      if (kernel_.locals[owner].kind == LocalKind::arg) facts_.written.insert(kernel_.locals[owner].index);
    }
  }

  void note_lives(const Part& part, const Range& scratch, int64_t moment) {
    for (const Argument& argument : part.tensors) {
      if (argument.kind == ArgumentKind::none) continue;
      const int64_t root = placed_[argument.value].root;
      if (kernel_.locals[root].kind != LocalKind::temp) continue;
      const Lifetime life{place_of_life, this, root, placed_[root].bytes, moment, moment};
      lives_.try_emplace(root, life).first->second.last = moment;
    }
    if (scratch.size() > 0) scratches_.push_back({place_of_life, this, -1 - moment, scratch, moment, moment});
  }

  const Plan& plan_;
  const std::vector<KernelFacts>& known_;
  const Kernel& kernel_;
  const std::string place_;
  KernelFacts& facts_;
  const int64_t rows_;
  const int64_t scratch_bytes_;
  const Symbols symbols_;
  std::vector<PlacedLocal> placed_;
  std::set<int64_t> written_;  // roots of temporaries
  std::map<int64_t, Lifetime> lives_;
  std::vector<Lifetime> scratches_;
};

}  // namespace

void check_sequence(const Plan& plan, const std::vector<KernelFacts>& known, KernelFacts& facts, int64_t rows) {
  SequenceRules(plan, known, facts, rows).check();
}

}  // namespace dsv41c::verifier
