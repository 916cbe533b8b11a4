// mhc_mix: the mix of one hyper-connection site (projection, scale, sigmoid, Sinkhorn) for every row.
#include <algorithm>
#include <cmath>

#include "dot.h"

namespace dsv41c::cpu {

namespace {

constexpr int64_t MAX_STREAMS = 8;
constexpr int64_t MAX_ITERATIONS = 1000;

float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

// Softmax of each row of m [s,s], plus eps. Row index = source stream, column = destination stream.
void softmax_rows(const float* m, int64_t s, float eps, float* a) {
  for (int64_t j = 0; j < s; ++j) {
    float largest = m[j * s], sum = 0.0f;
    for (int64_t k = 1; k < s; ++k) largest = std::max(largest, m[j * s + k]);
    for (int64_t k = 0; k < s; ++k) sum += a[j * s + k] = expf(m[j * s + k] - largest);
    for (int64_t k = 0; k < s; ++k) a[j * s + k] = a[j * s + k] / sum + eps;
  }
}

// Divides `s` lines of `s` elements by their sums plus eps.
void normalise(float* a, int64_t s, int64_t line_stride, int64_t stride, float eps) {
  for (int64_t l = 0; l < s; ++l) {
    float sum = 0.0f;
    for (int64_t e = 0; e < s; ++e) sum += a[l * line_stride + e * stride];
    for (int64_t e = 0; e < s; ++e) a[l * line_stride + e * stride] /= sum + eps;
  }
}

// Tensors: streams [T,S,H], fn [2S+S*S, S*H], scale [3], base [2S+S*S], alpha [T,S], beta [T,S], gamma [T,S,S].
// Scratch: T widened rows, one panel, T rows of projections.
class Mix final : public Kernel {
 public:
  explicit Mix(const Attributes& a)
      : iterations_(a.integer("iterations")), rms_eps_(a.real("rms_eps")), hc_eps_(a.real("hc_eps")) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 7)
      throw std::invalid_argument("mhc_mix takes streams, fn, scale, base, alpha, beta, gamma");
    const dsv41c_tensor &x = call.tensors[0], &fn = call.tensors[1];
    require(x, "streams", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 3);
    const int64_t rows = x.sizes[0], s = x.sizes[1], k = s * x.sizes[2], n = s * (s + 2);
    if (s > MAX_STREAMS)
      throw std::invalid_argument(std::to_string(s) + " streams, at most " + std::to_string(MAX_STREAMS));
    if (iterations_ < 1 || iterations_ > MAX_ITERATIONS)
      throw std::invalid_argument("iterations is " + std::to_string(iterations_) + ", needed 1 to " +
                                  std::to_string(MAX_ITERATIONS));
    require(fn, "fn", {DSV41C_FLOAT32}, 2);
    require_size(fn, "fn", 0, n);
    require_size(fn, "fn", 1, k);
    const char* names[] = {"scale", "base", "alpha", "beta", "gamma"};
    const int64_t sizes[] = {3, n, s, s, s};
    for (int i = 0; i < 5; ++i) {
      const dsv41c_tensor& t = call.tensors[2 + i];
      require(t, names[i], {DSV41C_FLOAT32}, i < 2 ? 1 : i < 4 ? 2 : 3);
      require_size(t, names[i], t.ndim - 1, sizes[i]);
      if (i >= 2) require_size(t, names[i], 0, rows);
    }
    require_size(call.tensors[6], "gamma", 1, s);
    require_scratch(call, 4 * (padded(k) * (rows + PANEL) + n * rows));
  }

  void run(const Call& call) const noexcept override {
    const dsv41c_tensor& x = call.tensors[0];
    const int64_t rows = x.sizes[0], s = x.sizes[1], k = s * x.sizes[2], kp = padded(k), n = s * (s + 2);
    float* wide = static_cast<float*>(call.scratch);
    float* panel = wide + rows * kp;
    float* projected = panel + PANEL * kp;
    widen_activation(x, 0, rows, k, k, wide);
    for (int64_t first = 0; first < n; first += PANEL) {
      const int64_t count = std::min(PANEL, n - first);
      const float* panel_rows[PANEL];
      for (int64_t i = 0; i < PANEL; ++i)
        panel_rows[i] = weight_row({call.tensors[1], call.tensors[1]}, first + std::min(i, count - 1), panel + i * kp);
      dot_panel(
          panel_rows, kp, rows, [&](int64_t t) { return wide + t * kp; },
          [&](int64_t t, v4 sums) {
            for (int64_t i = 0; i < count; ++i) projected[t * n + first + i] = sums[i];
          });
    }
    for (int64_t t = 0; t < rows; ++t) {
      const float* z = wide + t * kp;
      finish(call, t, s, 1.0f / std::sqrt(dot(z, z, kp) / static_cast<float>(k) + rms_eps_), projected + t * n);
    }
  }

 private:
  void finish(const Call& call, int64_t t, int64_t s, float factor, float* m) const noexcept {
    const float *scale = data<float>(call.tensors[2]), *base = data<float>(call.tensors[3]);
    float* alpha = data<float>(call.tensors[4]) + t * s;
    float* beta = data<float>(call.tensors[5]) + t * s;
    float* gamma = data<float>(call.tensors[6]) + t * s * s;
    for (int64_t i = 0; i < s * (s + 2); ++i) m[i] = m[i] * factor * scale[std::min<int64_t>(i / s, 2)] + base[i];
    for (int64_t i = 0; i < s; ++i) {
      alpha[i] = sigmoid(m[i]) + hc_eps_;
      beta[i] = 2.0f * sigmoid(m[s + i]);
    }
    softmax_rows(m + 2 * s, s, hc_eps_, gamma);
    normalise(gamma, s, 1, s, hc_eps_);
    for (int64_t i = 1; i < iterations_; ++i) {
      normalise(gamma, s, s, 1, hc_eps_);
      normalise(gamma, s, 1, s, hc_eps_);
    }
  }

  int64_t iterations_;
  float rms_eps_, hc_eps_;
};

}  // namespace

std::vector<Entry> mhc_entries() {
  return {{"mhc_mix", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Mix>(a); }}};
}

}  // namespace dsv41c::cpu
