// moe_gate and swiglu: routing, and the activation of the shared expert.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dot.h"
#include "swiglu.h"

namespace dsv41c::cpu {

namespace {

constexpr int64_t MAX_TOPK = 64;

float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// --- moe_gate -------------------------------------------------------------------------------------------

// Tensors: x [T,H], weight [E,H], bias [E], bias_vl [E], rows [T,8], expert [T,k], weight [T,k].
// Scratch: T widened rows, one panel, T rows of E scores.
class Gate final : public Kernel {
 public:
  explicit Gate(const Attributes& a) : topk_(a.integer("topk")), routed_scale_(a.real("routed_scale")) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 7)
      throw std::invalid_argument("moe_gate takes x, weight, bias, bias_vl, rows, expert, weight");
    const dsv41c_tensor &x = call.tensors[0], &w = call.tensors[1];
    require(x, "x", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
    require(w, "weight", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
    require_size(w, "weight", 1, x.sizes[1]);
    require(call.tensors[2], "bias", {DSV41C_FLOAT32}, 1);
    require(call.tensors[3], "bias_vl", {DSV41C_FLOAT32}, 1);
    require(call.tensors[4], "rows", {DSV41C_INT32}, 2);
    require_size(call.tensors[4], "rows", 1, NUM_ROW_COLUMNS);
    require(call.tensors[5], "expert", {DSV41C_INT32}, 2);
    require(call.tensors[6], "expert weight", {DSV41C_FLOAT32}, 2);
    for (int i : {2, 3}) require_size(call.tensors[i], "bias", 0, w.sizes[0]);
    for (int i : {4, 5, 6}) require_size(call.tensors[i], "rows, expert or expert weight", 0, x.sizes[0]);
    for (int i : {5, 6}) require_size(call.tensors[i], "expert or expert weight", 1, topk_);
    if (topk_ < 1 || topk_ > std::min(MAX_TOPK, w.sizes[0]))
      throw std::invalid_argument("topk " + std::to_string(topk_) + " of " + std::to_string(w.sizes[0]) + " experts");
    require_scratch(call, 4 * (padded(x.sizes[1]) * (x.sizes[0] + PANEL) + x.sizes[0] * w.sizes[0]));
  }

  void run(const Call& call) const noexcept override {
    const dsv41c_tensor &x = call.tensors[0], &w = call.tensors[1];
    const int64_t rows = x.sizes[0], k = x.sizes[1], kp = padded(k), experts = w.sizes[0];
    float* wide = static_cast<float*>(call.scratch);
    float* panel = wide + rows * kp;
    float* scores = panel + PANEL * kp;
    widen_activation(x, 0, rows, k, k, wide);
    for (int64_t first = 0; first < experts; first += PANEL) {
      const int64_t count = std::min(PANEL, experts - first);
      const float* panel_rows[PANEL];
      for (int64_t i = 0; i < PANEL; ++i)
        panel_rows[i] = weight_row({w, w}, first + std::min(i, count - 1), panel + i * kp);
      dot_panel(
          panel_rows, kp, rows, [&](int64_t t) { return wide + t * kp; },
          [&](int64_t t, v4 sums) {
            for (int64_t i = 0; i < count; ++i) scores[t * experts + first + i] = std::sqrt(softplus(sums[i]));
          });
    }
    const int32_t* table = data<int32_t>(call.tensors[4]);
    for (int64_t t = 0; t < rows; ++t) {
      const bool image = table[t * NUM_ROW_COLUMNS + FLAGS] & IMAGE;
      choose(scores + t * experts, data<float>(call.tensors[image ? 3 : 2]), experts,
             data<int32_t>(call.tensors[5]) + t * topk_, data<float>(call.tensors[6]) + t * topk_);
    }
  }

 private:
  // Insertion into a list of topk, best first. A key that is not strictly better stays behind, so ties go to
  // the lower id. NaN counts as the worst key: the ids are valid for every row.
  void choose(const float* score, const float* bias, int64_t experts, int32_t* expert, float* weight) const noexcept {
    float keys[MAX_TOPK];
    int64_t filled = 0;
    for (int64_t e = 0; e < experts; ++e) {
      float key = score[e] + bias[e];
      if (std::isnan(key)) key = -std::numeric_limits<float>::infinity();
      int64_t at = filled;
      while (at > 0 && key > keys[at - 1]) --at;
      if (at == topk_) continue;
      filled = std::min(filled + 1, topk_);
      for (int64_t i = filled - 1; i > at; --i) keys[i] = keys[i - 1], expert[i] = expert[i - 1];
      keys[at] = key;
      expert[at] = static_cast<int32_t>(e);
    }
    float sum = 0.0f;
    for (int64_t i = 0; i < topk_; ++i) sum += score[expert[i]];
    for (int64_t i = 0; i < topk_; ++i) weight[i] = routed_scale_ * score[expert[i]] / (sum + 1e-20f);
  }

  int64_t topk_;
  float routed_scale_;
};

// --- swiglu ---------------------------------------------------------------------------------------------

// Tensors: gate, up, y, all [T,N].
class Swiglu final : public Kernel {
 public:
  explicit Swiglu(const Attributes& a) : limit_(a.real("limit")), dtype_(a.dtype("dtype")) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 3) throw std::invalid_argument("swiglu takes gate, up, y");
    require(call.tensors[0], "gate", {DSV41C_FLOAT32}, 2);
    require(call.tensors[1], "up", {DSV41C_FLOAT32}, 2);
    require(call.tensors[2], "y", {dtype_}, 2);
    for (int i : {1, 2})
      for (int d : {0, 1}) require_size(call.tensors[i], i == 1 ? "up" : "y", d, call.tensors[0].sizes[d]);
  }

  void run(const Call& call) const noexcept override {
    const float *gate = data<float>(call.tensors[0]), *up = data<float>(call.tensors[1]);
    const int64_t count = call.tensors[0].sizes[0] * call.tensors[0].sizes[1];
    for (int64_t i = 0; i < count; ++i) {
      const float a = clamped_swiglu(gate[i], up[i], limit_);
      if (dtype_ == DSV41C_FLOAT32)
        data<float>(call.tensors[2])[i] = a;
      else
        data<bf16>(call.tensors[2])[i] = from_float<bf16>(a);
    }
  }

 private:
  float limit_;
  int32_t dtype_;
};

}  // namespace

std::vector<Entry> moe_entries() {
  return {{"moe_gate", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Gate>(a); }},
          {"swiglu", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Swiglu>(a); }}};
}

}  // namespace dsv41c::cpu
