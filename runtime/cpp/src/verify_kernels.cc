// Rules of composite bodies: locals lie inside their base, temporaries are written before they are read.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

// The local that owns the bytes, and the bytes: of the scratch, of an argument or of a constant.
struct PlacedLocal {
  int64_t root;
  Range bytes;
};

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
      placed_.push_back(place(local, where));
      if (local.kind == LocalKind::arg) {
        facts_.arguments.try_emplace(local.index, local.dtype);
        int64_t& span = facts_.span_bytes[{rows_, local.index}];
        span = std::max(span, placed_.back().bytes.end);
      }
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

  PlacedLocal place(const Local& local, const Where& where) const {
    const auto index = static_cast<int64_t>(placed_.size());
    if (local.kind == LocalKind::constant) return {index, {Region::constant, 0, 0, item_bytes(local.dtype)}};
    const int64_t span = shape_at(local.sizes, local.strides, local.dtype, symbols_, where).span_bytes;
    if (local.kind == LocalKind::arg) {
      if (local.index < 0) broken("argument index out of range", where, std::to_string(local.index), "at least 0");
      return {index, {Region::argument, local.index, 0, span}};
    }
    const int64_t offset = evaluate_extent(local.offset, symbols_, where);
    if (local.kind == LocalKind::view) return place_view(local, offset, span, where);
    check_offset(offset, item_bytes(local.dtype), where);
    const Range temp{Region::scratch, 0, offset, offset + span};
    const int64_t scratch = facts_.scratch_bytes.at(rows_);
    if (temp.end > scratch)
      broken("temporary outside the scratch", where, temp.text(), "an end of at most " + std::to_string(scratch));
    return {index, temp};
  }

  PlacedLocal place_view(const Local& local, int64_t offset, int64_t span, const Where& where) const {
    check_index(local.index, placed_.size(), "view base", where);
    const PlacedLocal& base = placed_[local.index];
    const int64_t begin = add_offset(base.bytes.begin, offset, local.dtype, where);
    const Range view{base.bytes.region, base.bytes.number, begin, begin + span};
    if (!base.bytes.contains(view)) broken("view outside its base", where, view.text(), base.bytes.text());
    return {base.root, view};
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

KernelFacts check_kernel(const Kernel& kernel, size_t index, const std::set<int64_t>& points) {
  KernelFacts facts;
  for (int64_t rows : points) {
    const auto where = [&] { return kernel_place(kernel, index); };
    const int64_t scratch = evaluate_extent(kernel.scratch_bytes, {{std::string(plan_format::ROWS), rows}}, where);
    if (scratch < 0) broken("negative scratch", where, std::to_string(scratch), "at least 0 bytes");
    facts.scratch_bytes[rows] = scratch;
    if (kernel.kind == BodyKind::composite) BodyRules(kernel, where(), rows, facts).check();
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
  std::vector<KernelFacts> facts;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    if (points[i].empty()) points[i] = {1};
    facts.push_back(check_kernel(plan.kernels[i], i, points[i]));
  }
  return facts;
}

}  // namespace dsv41c::verifier
