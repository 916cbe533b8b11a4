// moe_route and swiglu: routing, and the activation of the shared expert.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dot.h"
#include "swiglu.h"

namespace dsv41c::cpu {

namespace {

constexpr int64_t MAX_TOPK = 64;

float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// --- moe_route ------------------------------------------------------------------------------------------

// Tensors: scores [T,E], bias [E], bias_vl [E], rows [T,8], expert [T,k], weight [T,k]. Scratch: one row of E floats.
class Route final : public Kernel {
 public:
  explicit Route(const Attributes& a) : topk_(a.integer("topk")), routed_scale_(a.real("routed_scale")) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 6)
      throw std::invalid_argument("moe_route takes scores, bias, bias_vl, rows, expert, weight");
    const dsv41c_tensor& scores = call.tensors[0];
    require(scores, "scores", {DSV41C_FLOAT32}, 2);
    require(call.tensors[1], "bias", {DSV41C_FLOAT32}, 1);
    require(call.tensors[2], "bias_vl", {DSV41C_FLOAT32}, 1);
    require(call.tensors[3], "rows", {DSV41C_INT32}, 2);
    require_size(call.tensors[3], "rows", 1, NUM_ROW_COLUMNS);
    require(call.tensors[4], "expert", {DSV41C_INT32}, 2);
    require(call.tensors[5], "expert weight", {DSV41C_FLOAT32}, 2);
    const int64_t experts = scores.sizes[1];
    for (int i : {1, 2}) require_size(call.tensors[i], "bias", 0, experts);
    for (int i : {3, 4, 5}) require_size(call.tensors[i], "rows, expert or expert weight", 0, scores.sizes[0]);
    for (int i : {4, 5}) require_size(call.tensors[i], "expert or expert weight", 1, topk_);
    if (topk_ < 1 || topk_ > std::min(MAX_TOPK, experts))
      throw std::invalid_argument("topk " + std::to_string(topk_) + " of " + std::to_string(experts) + " experts");
    require_scratch(call, 4 * experts);
  }

  void run(const Call& call) const noexcept override {
    const int64_t rows = call.tensors[0].sizes[0], experts = call.tensors[0].sizes[1];
    const float* scores = data<float>(call.tensors[0]);
    const int32_t* table = data<int32_t>(call.tensors[3]);
    float* score = static_cast<float*>(call.scratch);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t e = 0; e < experts; ++e) score[e] = std::sqrt(softplus(scores[t * experts + e]));
      const bool image = table[t * NUM_ROW_COLUMNS + FLAGS] & IMAGE;
      choose(score, data<float>(call.tensors[image ? 2 : 1]), experts, data<int32_t>(call.tensors[4]) + t * topk_,
             data<float>(call.tensors[5]) + t * topk_);
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
  return {{"moe_route", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Route>(a); }},
          {"swiglu", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Swiglu>(a); }}};
}

}  // namespace dsv41c::cpu
