// The draft: rows of a block for each group, and the confidence of a position.
#include <cmath>

#include "row_view.h"
#include "upload_columns.h"

namespace dsv41c::cpu {
namespace {

// upload [G,5], slot_token [S+1], slot_position [S+1] -> rows [G*block,8]: the newest token of the slot and noise
// behind it, at the positions that come next
class DraftRowTable final : public Kernel {
 public:
  explicit DraftRowTable(const Attributes& a)
      : block_(a.integer("block")), noise_token_(static_cast<int32_t>(a.integer("noise_token"))) {}

  void check(const Call& c) const override {
    require(c.tensors.at(0), "upload", {DSV41C_INT32}, 2);
    require_size(c.tensors[0], "upload", 1, NUM_UPLOAD_COLUMNS);
    require(c.tensors.at(1), "slot_token", {DSV41C_INT32}, 1);
    require(c.tensors.at(2), "slot_position", {DSV41C_INT32}, 1);
    require_size(c.tensors[2], "slot_position", 0, c.tensors[1].sizes[0]);
    if (block_ < 1 || block_ > MAX_BLOCK)
      throw std::invalid_argument("block " + std::to_string(block_) + ", needed 1 to " + std::to_string(MAX_BLOCK));
    require_rows(c.tensors.at(3), c.tensors[0].sizes[0] * block_);
  }

  void run(const Call& c) const noexcept override {
    for (int64_t group = 0; group < c.tensors[0].sizes[0]; ++group) {
      const int32_t* upload = data<int32_t>(c.tensors[0]) + group * NUM_UPLOAD_COLUMNS;
      const int64_t slot = Row::slot_in(c.tensors[2], upload[U_SLOT]);
      const int32_t position = data<int32_t>(c.tensors[2])[slot];
      const bool fits = position >= 0 && position <= std::numeric_limits<int32_t>::max() - block_;
      const int32_t base = fits ? position : 0;
      for (int64_t i = 0; i < block_; ++i) {
        int32_t* out = data<int32_t>(c.tensors[3]) + (group * block_ + i) * NUM_ROW_COLUMNS;
        out[SLOT] = upload[U_SLOT];
        out[POSITION] = base + static_cast<int32_t>(i);
        out[BASE] = base;
        out[FIRST_ROW] = static_cast<int32_t>(group * block_);
        out[COUNT] = static_cast<int32_t>(block_);
        out[TOKEN] = i > 0 ? noise_token_ : upload[U_TOKEN] >= 0 ? upload[U_TOKEN] : data<int32_t>(c.tensors[1])[slot];
        out[FLOOR] = 0;
        out[FLAGS] = upload[U_FLAGS];
      }
    }
  }

 private:
  static constexpr int64_t MAX_BLOCK = 1 << 20;

  int64_t block_;
  int32_t noise_token_;
};

// x [G,1] -> out [G,1]. Torch takes another exponential for what is left over behind whole vectors.
class Sigmoid final : public Kernel {
 public:
  explicit Sigmoid(const Attributes&) {}

  void check(const Call& c) const override {
    require(c.tensors.at(0), "x", {DSV41C_FLOAT32}, 2);
    require(c.tensors.at(1), "out", {DSV41C_FLOAT32}, 2);
    for (int d : {0, 1}) require_size(c.tensors[1], "out", d, c.tensors[0].sizes[d]);
  }

  void run(const Call& c) const noexcept override {
    const int64_t count = c.tensors[0].sizes[0] * c.tensors[0].sizes[1];
    for (int64_t i = 0; i < count; ++i)
      data<float>(c.tensors[1])[i] = 1.0f / (1.0f + std::exp(-data<float>(c.tensors[0])[i]));
  }
};

}  // namespace

std::vector<Entry> draft_entries() {
  return {
      {"draft_row_table",
       [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<DraftRowTable>(a); }},
      {"sigmoid", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<Sigmoid>(a); }},
  };
}

}  // namespace dsv41c::cpu
