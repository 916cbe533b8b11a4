// linear and grouped_linear: y = x * W^T with float32 accumulation in an order fixed by K alone.
#include <algorithm>

#include "dot.h"

namespace dsv41c::cpu {

namespace {

constexpr int64_t BLOCK = 32;  // weight rows and columns that share one scale

void widen_blocks(const uint8_t* codes, const uint8_t* scales, int64_t k, float* out) {
  for (int64_t b = 0; b < k; b += BLOCK) {
    const float scale = e8m0_to_float(scales[b / BLOCK]);
    const int64_t end = std::min(b + BLOCK, k);
    for (int64_t i = b; i < end; ++i) out[i] = e4m3_to_float(codes[i]) * scale;
  }
}

}  // namespace

const float* weight_row(const Weight& weight, int64_t n, float* panel) {
  const int64_t k = weight.values.sizes[1];
  if (weight.values.dtype == DSV41C_FLOAT32) {
    const float* row = data<float>(weight.values) + n * k;
    if (k % LANES == 0) return row;
    widen_rows(row, 1, k, k, panel);
  } else if (weight.values.dtype == DSV41C_BFLOAT16) {
    widen_rows(data<bf16>(weight.values) + n * k, 1, k, k, panel);
  } else {
    widen_blocks(data<uint8_t>(weight.values) + n * k, data<uint8_t>(weight.scale) + n / BLOCK * weight.scale.sizes[1],
                 k, panel);
    std::fill(panel + k, panel + padded(k), 0.0f);
  }
  return panel;
}

namespace {

// Tensors: x [T,K] or [T,G,K], weight [G*N,K], scale, y [T,G*N]. Scratch: T widened rows and one panel.
class Linear final : public Kernel {
 public:
  Linear(const Attributes& a, bool grouped)
      : dtype_(a.dtype("dtype")), grouped_(grouped), groups_(grouped ? a.integer("groups") : 1) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 4) throw std::invalid_argument("linear takes x, weight, scale, y");
    const dsv41c_tensor &x = call.tensors[0], &w = call.tensors[1], &scale = call.tensors[2], &y = call.tensors[3];
    require(x, "x", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, grouped_ ? 3 : 2);
    require(w, "weight", {DSV41C_FLOAT32, DSV41C_BFLOAT16, DSV41C_FLOAT8_E4M3FN}, 2);
    require(y, "y", {dtype_}, 2);
    if (w.dtype == DSV41C_FLOAT8_E4M3FN) {
      require(scale, "scale", {DSV41C_FLOAT8_E8M0FNU}, 2);
      require_size(scale, "scale", 0, (w.sizes[0] + BLOCK - 1) / BLOCK);
      require_size(scale, "scale", 1, (w.sizes[1] + BLOCK - 1) / BLOCK);
    } else if (scale.ndim != -1) {
      throw std::invalid_argument("a scale goes with an e4m3 weight only");
    }
    if (grouped_) require_size(x, "x", 1, groups_);
    if (groups_ < 1 || w.sizes[0] % groups_ != 0)
      throw std::invalid_argument(std::to_string(w.sizes[0]) + " weight rows do not form " + std::to_string(groups_) +
                                  " groups");
    require_size(x, "x", x.ndim - 1, w.sizes[1]);
    require_size(y, "y", 0, x.sizes[0]);
    require_size(y, "y", 1, w.sizes[0]);
    require_scratch(call, (x.sizes[0] + PANEL) * padded(w.sizes[1]) * 4);
  }

  void run(const Call& call) const noexcept override {
    if (dtype_ == DSV41C_FLOAT32)
      multiply<float>(call);
    else
      multiply<bf16>(call);
  }

 private:
  template <class Out>
  void multiply(const Call& call) const noexcept {
    const dsv41c_tensor &x = call.tensors[0], &w = call.tensors[1], &y = call.tensors[3];
    const int64_t rows = x.sizes[0], k = w.sizes[1], kp = padded(k), width = w.sizes[0], n = width / groups_;
    float* wide = static_cast<float*>(call.scratch);
    float* panel = wide + rows * kp;
    for (int64_t g = 0; g < groups_; ++g) {
      widen_activation(x, g * k, rows, groups_ * k, k, wide);
      for (int64_t first = g * n, end = first + n; first < end; first += PANEL) {
        const int64_t count = std::min(PANEL, end - first);
        const float* panel_rows[PANEL];
        for (int64_t i = 0; i < PANEL; ++i)  // a short panel repeats its last row
          panel_rows[i] = weight_row({w, call.tensors[2]}, first + std::min(i, count - 1), panel + i * kp);
        dot_panel(
            panel_rows, kp, rows, [&](int64_t t) { return wide + t * kp; },
            [&](int64_t t, v4 sums) {
              Out* out = data<Out>(y) + t * width + first;
              for (int64_t i = 0; i < count; ++i) out[i] = from_float<Out>(sums[i]);
            });
      }
    }
  }

  int32_t dtype_;
  bool grouped_;
  int64_t groups_;
};

}  // namespace

std::vector<Entry> linear_entries() {
  return {{"linear", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Linear>(a, false); }},
          {"grouped_linear",
           [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Linear>(a, true); }}};
}

}  // namespace dsv41c::cpu
