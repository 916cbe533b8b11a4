// Rules of kernels, and of composite bodies: temporaries are written before they are read, and share no byte.
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

std::string kernel_place(const Kernel& kernel, size_t index) {
  return "kernel " + std::to_string(index) + " " + kernel.op;
}

// One walk over a composite body at one number of rows.
class BodyRules {
 public:
  BodyRules(const Kernel& kernel, std::string place, int64_t rows, KernelFacts& facts)
      : kernel_(kernel),
        place_(std::move(place)),
        symbols_{{std::string(plan_format::ROWS), rows}},
        rows_(rows),
        facts_(facts) {}

  void check() {
    for (const Local& local : kernel_.locals) {
      const auto where = [&] { return local_place(static_cast<int64_t>(placed_.size())); };
      placed_.push_back(place_local(local, placed_, symbols_, facts_.scratch_bytes.at(rows_), where));
      note_argument(local, placed_.back(), rows_, facts_);
    }
    for (size_t i = 0; i < kernel_.calls.size(); ++i) check_call(kernel_.calls[i], static_cast<int64_t>(i));
    std::vector<Lifetime> lives;
    for (const auto& [root, life] : lives_) lives.push_back(life);
    check_disjoint_lives(std::move(lives));
  }

 private:
  std::string local_place(int64_t index) const { return place_ + ", local " + std::to_string(index); }
  static std::string place_in_body(const void* owner, int64_t root) {
    return static_cast<const BodyRules*>(owner)->local_place(root);
  }

  // Reads come before writes: the out tensors of a call are written from its other arguments.
  void check_call(const Call& call, int64_t moment) {
    const auto where = [&] { return place_ + ", call " + std::to_string(moment) + " " + call.op; };
    for (const Tag& tag : call.args)
      for (int64_t local : tag.locals) check_index(local, kernel_.locals.size(), "local", where);
    for (const Tag& tag : call.args)
      if (tag.kind != TagKind::m)
        for (int64_t local : tag.locals) read(local, where);
    for (const Tag& tag : call.args)
      if (tag.kind == TagKind::m) write(tag.locals[0], where);
    for (const Tag& tag : call.args) {
      for (const Expr& value : tag.values) evaluate_at(value, symbols_, where);
      for (int64_t local : tag.locals) live(local, moment);
    }
  }

  void read(int64_t local, const Where& where) {
    const Local& root = kernel_.locals[placed_[local].root];
    if (root.kind == LocalKind::temp && !written_.contains(placed_[local].root))
      broken("temporary is read before it is written", where, "local " + std::to_string(local),
             "an earlier call that writes it");
    if (root.kind == LocalKind::arg && !facts_.written.contains(root.index)) facts_.read_first.insert(root.index);
  }

  void write(int64_t local, const Where& where) {
    const int64_t owner = placed_[local].root;
    const Local& root = kernel_.locals[owner];
    if (root.kind == LocalKind::constant)
      broken("constant is written", where, "local " + std::to_string(local), "a temporary or an argument");
    written_.insert(owner);
    if (root.kind == LocalKind::arg) facts_.written.insert(root.index);
  }

  void live(int64_t local, int64_t moment) {
    const int64_t root = placed_[local].root;
    if (kernel_.locals[root].kind != LocalKind::temp) return;
    const Lifetime life{place_in_body, this, root, placed_[root].bytes, moment, moment};
    lives_.try_emplace(root, life).first->second.last = moment;
  }

  const Kernel& kernel_;
  const std::string place_;
  const Symbols symbols_;
  const int64_t rows_;
  KernelFacts& facts_;
  std::vector<PlacedLocal> placed_;
  std::set<int64_t> written_;
  std::map<int64_t, Lifetime> lives_;
};

// Of the kernel behind those whose facts are `known`.
KernelFacts check_kernel(const Plan& plan, const std::vector<KernelFacts>& known, const std::set<int64_t>& points) {
  const Kernel& kernel = plan.kernels[known.size()];
  KernelFacts facts{.has_locals = kernel.kind == BodyKind::composite || kernel.kind == BodyKind::sequence};
  for (int64_t rows : points) {
    const auto where = [&] { return kernel_place(kernel, known.size()); };
    const int64_t scratch = evaluate_extent(kernel.scratch_bytes, {{std::string(plan_format::ROWS), rows}}, where);
    if (scratch < 0) broken("negative scratch", where, std::to_string(scratch), "at least 0 bytes");
    facts.scratch_bytes[rows] = scratch;
    if (kernel.kind == BodyKind::composite) BodyRules(kernel, where(), rows, facts).check();
    if (kernel.kind == BodyKind::sequence) check_sequence(plan, known, facts, rows);
    if (kernel.kind == BodyKind::cuda)
      check_cuda_body(kernel, where(), {{std::string(plan_format::ROWS), rows}}, scratch);
  }
  return facts;
}

}  // namespace

std::vector<KernelFacts> check_kernels(const Plan& plan) {
  std::vector<std::set<int64_t>> points(plan.kernels.size());
  for (const Method& method : plan.methods) {
    const std::vector<int64_t> at = points_of(method, symbol_of(plan, method));
    for_each_launch(method, [&](int64_t, const Launch& launch) {
      if (launch.kernel >= 0 && launch.kernel < static_cast<int64_t>(points.size()))
        points[launch.kernel].insert(at.begin(), at.end());
    });
  }
  for (size_t i = plan.kernels.size(); i-- > 0;) {
    if (points[i].empty()) points[i] = {1};
    for (const Part& part : plan.kernels[i].parts)  // a kernel that a sequence runs runs at the sequence's points too
      if (part.kernel >= 0 && part.kernel < static_cast<int64_t>(i))
        points[part.kernel].insert(points[i].begin(), points[i].end());
  }
  std::vector<KernelFacts> facts;
  for (const auto& at : points) facts.push_back(check_kernel(plan, facts, at));
  return facts;
}

}  // namespace dsv41c::verifier
