// moe_experts: the routed FP4 experts of every row, grouped by expert so that each weight row is expanded once.
#include <algorithm>
#include <cmath>

#include "dot.h"
#include "swiglu.h"

namespace dsv41c::cpu {

namespace {

constexpr int64_t GROUP = 32;  // elements of an FP4 row, or of a quantised activation, that share one scale

// Row n of expert e of an FP4 weight [E,N,K/2] with scales [E,N,K/32], as float32. Low nibble = even column.
void widen_fp4(const dsv41c_tensor& w, const dsv41c_tensor& scale, int64_t e, int64_t n, float* out) {
  typedef int8_t v16 __attribute__((vector_size(16)));
  static constexpr v16 TWICE = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int64_t row = e * w.sizes[1] + n, groups = scale.sizes[2];
  const uint8_t *codes = data<uint8_t>(w) + row * w.sizes[2], *scales = data<uint8_t>(scale) + row * groups;
  for (int64_t g = 0; g < groups; ++g) {
    v16 packed;
    std::memcpy(&packed, codes + g * 16, sizeof packed);
    const v16 low = __builtin_shuffle(TWICE, packed & 15), high = __builtin_shuffle(TWICE, (packed >> 4) & 15);
    int8_t values[GROUP];
    const v16 front = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const v16 back = __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    std::memcpy(values, &front, sizeof front);
    std::memcpy(values + 16, &back, sizeof back);
    const float half_scale = e8m0_to_float(scales[g]) * 0.5f;
    for (int64_t i = 0; i < GROUP; ++i) out[g * GROUP + i] = static_cast<float>(values[i]) * half_scale;
  }
}

// 2^ceil(log2(v)) of a positive normal float, from its bits.
float power_of_two_at_least(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  u = (u + 0x007fffffu) & 0x7f800000u;
  std::memcpy(&v, &u, 4);
  return v;
}

// The quantize_fp8 of one row (see compiler/ops/quantize.py): e4m3 to nearest even on 32-element groups.
void quantize_row(float* v, int64_t n) {
  for (int64_t g = 0; g < n; g += GROUP) {
    float largest = 1e-4f;
    for (int64_t i = 0; i < GROUP; ++i) largest = std::fabs(v[g + i]) > largest ? std::fabs(v[g + i]) : largest;
    const float scale = power_of_two_at_least(largest / 448.0f), inverse = 1.0f / scale;
    for (int64_t i = 0; i < GROUP; ++i) {
      const float q = v[g + i] * inverse;
      float step;
      uint32_t u;
      std::memcpy(&u, &q, 4);
      u &= 0x7f800000u;
      std::memcpy(&step, &u, 4);
      step = (step < 0x1p-6f ? 0x1p-6f : step) * 0x1.8p20f;  // 1.5 * 2^23 units of the last of 3 mantissa bits
      v[g + i] = std::copysign((q + step) - step, q) * scale;
    }
  }
}

// Tensors: x [T,H], expert [T,k], weight [T,k], w1, w1_scale, w3, w3_scale, w2, w2_scale, y [T,H].
// Scratch: sort keys, widened x, one panel, activation and result of every (row, choice).
class Experts final : public Kernel {
 public:
  explicit Experts(const Attributes& a) : limit_(a.real("limit")), quantize_(a.flag("quantize")) {}

  void check(const Call& call) const override {
    if (call.tensors.size() != 10) throw std::invalid_argument("moe_experts takes 9 inputs and y");
    const dsv41c_tensor &x = call.tensors[0], &expert = call.tensors[1], &weight = call.tensors[2],
                        &y = call.tensors[9];
    require(x, "x", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
    require(expert, "expert", {DSV41C_INT32}, 2);
    require(weight, "weight", {DSV41C_FLOAT32}, 2);
    require(y, "y", {DSV41C_FLOAT32}, 2);
    const int64_t rows = x.sizes[0], width = x.sizes[1], topk = expert.sizes[1];
    require_size(expert, "expert", 0, rows);
    require_size(weight, "weight", 0, rows);
    require_size(weight, "weight", 1, topk);
    require_size(y, "y", 0, rows);
    require_size(y, "y", 1, width);
    const int64_t experts = call.tensors[3].sizes[0], inner = call.tensors[3].sizes[1];
    if (width % GROUP != 0 || inner % GROUP != 0)
      throw std::invalid_argument("widths " + std::to_string(width) + " and " + std::to_string(inner) +
                                  ", needed multiples of 32");
    check_weight(call, 3, "w1", experts, inner, width);
    check_weight(call, 5, "w3", experts, inner, width);
    check_weight(call, 7, "w2", experts, width, inner);
    require_scratch(
        call, 8 * rows * topk + 4 * (rows * width + PANEL * std::max(width, inner) + rows * topk * (inner + width)));
  }

  void run(const Call& call) const noexcept override {
    const dsv41c_tensor &x = call.tensors[0], &expert = call.tensors[1];
    const Shape s{x.sizes[0], x.sizes[1], expert.sizes[1], call.tensors[3].sizes[1]};
    uint64_t* keys = static_cast<uint64_t*>(call.scratch);
    float* wide = reinterpret_cast<float*>(keys + s.rows * s.topk);
    float* panel = wide + s.rows * s.width;
    float* inner = panel + PANEL * std::max(s.width, s.inner);
    float* result = inner + s.rows * s.topk * s.inner;
    widen_activation(x, 0, s.rows, s.width, s.width, wide);
    const int64_t count = sort_by_expert(call, keys);
    for (int64_t begin = 0, end; begin < count; begin = end) {
      for (end = begin + 1; end < count && keys[end] >> 32 == keys[begin] >> 32;) ++end;
      const int64_t e = static_cast<int64_t>(keys[begin] >> 32);
      const Group group{keys + begin, end - begin};
      up_and_gate(call, s, e, group, wide, panel, inner);
      down(call, s, e, group, inner, panel, result);
    }
    sum_choices(call, s, result);
  }

 private:
  struct Shape {
    int64_t rows, width, topk, inner;
  };
  struct Group {  // the (row, choice) pairs of one expert
    const uint64_t* keys;
    int64_t count;
    int64_t pair(int64_t i) const { return static_cast<int64_t>(keys[i] & 0xffffffffu); }
  };

  static void check_weight(const Call& call, int at, const char* name, int64_t experts, int64_t n, int64_t k) {
    require(call.tensors[at], name, {DSV41C_INT8}, 3);
    require(call.tensors[at + 1], name, {DSV41C_FLOAT8_E8M0FNU}, 3);
    const int64_t sizes[] = {experts, n, k / 2}, scales[] = {experts, n, k / GROUP};
    for (int d = 0; d < 3; ++d) {
      require_size(call.tensors[at], name, d, sizes[d]);
      require_size(call.tensors[at + 1], name, d, scales[d]);
    }
  }

  static bool chosen(const Call& call, int64_t pair) {
    const int32_t e = data<int32_t>(call.tensors[1])[pair];
    return e >= 0 && e < call.tensors[3].sizes[0];
  }

  // Keys expert << 32 | pair in ascending order: rows of one expert become neighbours, in time that does not
  // grow with the number of experts. Returns how many pairs have an expert.
  static int64_t sort_by_expert(const Call& call, uint64_t* keys) {
    const dsv41c_tensor& expert = call.tensors[1];
    int64_t count = 0;
    for (int64_t p = 0; p < expert.sizes[0] * expert.sizes[1]; ++p)
      if (chosen(call, p))
        keys[count++] = static_cast<uint64_t>(data<int32_t>(expert)[p]) << 32 | static_cast<uint64_t>(p);
    std::sort(keys, keys + count);
    return count;
  }

  // One panel holds two rows of w1 and the same two of w3, so a tile yields both factors of two activations.
  void up_and_gate(const Call& call, const Shape& s, int64_t e, const Group& group, const float* wide, float* panel,
                   float* inner) const {
    const float* weight = data<float>(call.tensors[2]);
    const bool narrow = call.tensors[0].dtype == DSV41C_BFLOAT16;
    const float* panel_rows[PANEL] = {panel, panel + s.width, panel + 2 * s.width, panel + 3 * s.width};
    for (int64_t n = 0; n < s.inner; n += 2) {
      for (int64_t i = 0; i < 2; ++i) {
        widen_fp4(call.tensors[3], call.tensors[4], e, n + i, panel + i * s.width);
        widen_fp4(call.tensors[5], call.tensors[6], e, n + i, panel + (2 + i) * s.width);
      }
      dot_panel(
          panel_rows, s.width, group.count, [&](int64_t i) { return wide + group.pair(i) / s.topk * s.width; },
          [&](int64_t i, v4 sums) {
            for (int64_t j = 0; j < 2; ++j) {
              const float a = clamped_swiglu(sums[j], sums[2 + j], limit_) * weight[group.pair(i)];
              inner[group.pair(i) * s.inner + n + j] = narrow ? to_float(from_float<bf16>(a)) : a;
            }
          });
    }
    if (quantize_)
      for (int64_t i = 0; i < group.count; ++i) quantize_row(inner + group.pair(i) * s.inner, s.inner);
  }

  void down(const Call& call, const Shape& s, int64_t e, const Group& group, const float* inner, float* panel,
            float* result) const {
    const float* panel_rows[PANEL] = {panel, panel + s.inner, panel + 2 * s.inner, panel + 3 * s.inner};
    for (int64_t n = 0; n < s.width; n += PANEL) {
      for (int64_t i = 0; i < PANEL; ++i) widen_fp4(call.tensors[7], call.tensors[8], e, n + i, panel + i * s.inner);
      dot_panel(
          panel_rows, s.inner, group.count, [&](int64_t i) { return inner + group.pair(i) * s.inner; },
          [&](int64_t i, v4 sums) { std::memcpy(result + group.pair(i) * s.width + n, &sums, sizeof sums); });
    }
  }

  // Each row adds its choices in the order given, whatever order the experts ran in.
  static void sum_choices(const Call& call, const Shape& s, const float* result) {
    for (int64_t t = 0; t < s.rows; ++t) {
      float* y = data<float>(call.tensors[9]) + t * s.width;
      std::fill(y, y + s.width, 0.0f);
      for (int64_t p = t * s.topk; p < (t + 1) * s.topk; ++p)
        if (chosen(call, p))
          for (int64_t h = 0; h < s.width; ++h) y[h] += result[p * s.width + h];
    }
  }

  float limit_;
  bool quantize_;
};

}  // namespace

std::vector<Entry> expert_entries() {
  return {{"moe_experts", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Experts>(a); }}};
}

}  // namespace dsv41c::cpu
