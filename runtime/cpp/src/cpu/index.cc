// Scores of compressed entries and the selection of the best ones, with an exact tie order.
#include <algorithm>

#include "lanes.h"
#include "row_view.h"

namespace dsv41c::cpu {
namespace {

// Scratch of one row: one score and one number per candidate and, where keys are packed, one key unpacked.
struct Scratch {
  static int64_t bytes(int64_t candidates, int64_t key_bytes) { return candidates * 8 + key_bytes; }
  Scratch(void* memory, int64_t candidates)
      : score(static_cast<float*>(memory)),
        order(reinterpret_cast<int32_t*>(score + candidates)),
        key(order + candidates) {}
  float* score;
  int32_t* order;
  void* key;
};

// Leaves the ranks (0..n-1) of the best min(k, n) scores at the front of `order`, ascending. Equal scores: the
// lower rank wins. The comparison is a total order (scores hold no NaN), so the chosen set is unique.
int64_t choose(const float* score, int32_t* order, int64_t n, int64_t k) noexcept {
  for (int64_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
  if (n <= k) return n;
  std::nth_element(order, order + k, order + n,
                   [score](int32_t a, int32_t b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
  std::sort(order, order + k);
  return k;
}

void check_block_size(int64_t size) {
  if (size < 1 || size > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument("block_size " + std::to_string(size) + ", needed 1 to 2^31 - 1");
}

// Shared tensors: q [T,Hi,Di], weights [T,Hi], keys [P+1,page rows,Di], page_table, rows.
class IndexKernel : public Kernel {
 protected:
  enum { Q, WEIGHTS, KEYS, PAGES, ROWS };
  explicit IndexKernel(const Attributes& a)
      : topk_(a.integer("topk")),
        ratio_(a.integer("ratio")),
        weight_scale_(static_cast<float>(a.real("weight_scale"))) {
    if (topk_ < 1 || ratio_ < 1) throw std::invalid_argument("topk and ratio must be at least 1");
  }

  void check_inputs(const Call& c, int64_t candidates) const {
    const auto& q = c.tensors.at(Q);
    require(q, "q", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 3);
    require(c.tensors.at(WEIGHTS), "weights", {DSV41C_FLOAT32}, 2);
    require_size(c.tensors[WEIGHTS], "weights", 0, q.sizes[0]);
    require_size(c.tensors[WEIGHTS], "weights", 1, q.sizes[1]);
    require_pool(c.tensors.at(KEYS), "keys", c.tensors.at(PAGES), q.dtype, q.sizes[2]);
    require_rows(c.tensors.at(ROWS), q.sizes[0]);
    const bool packed = c.tensors[KEYS].dtype == DSV41C_UINT8;
    require_scratch(c, Scratch::bytes(candidates, packed ? q.sizes[2] * (q.dtype == DSV41C_FLOAT32 ? 4 : 2) : 0));
  }
  static void check_chosen(const dsv41c_tensor& t, const char* name, int64_t rows, int64_t width) {
    require(t, name, {DSV41C_INT32}, 2);
    require_size(t, name, 0, rows);
    require_size(t, name, 1, width);
  }

  static PagedPool pool(const Call& c) { return {c.tensors[KEYS], c.tensors[PAGES]}; }
  int64_t visible(const Call& c, const Row& row) const {
    return std::clamp<int64_t>((row[POSITION] + 1) / ratio_, 0, pool(c).capacity());
  }

  // Score of entry j for row i. A NaN score counts as -inf: it is chosen only when nothing else is left.
  template <class T>
  float score(const Call& c, int64_t i, int64_t slot, int64_t j, void* memory) const noexcept {
    const int64_t heads = c.tensors[Q].sizes[1], width = c.tensors[Q].sizes[2];
    const T *q = data<T>(c.tensors[Q]) + i * heads * width, *key = static_cast<const T*>(memory);
    if (const Packing packing = packing_of(c.tensors[KEYS], width); packing != Packing::NONE)
      unpack_row(packing, pool(c).entry<uint8_t>(slot, j), width, static_cast<T*>(memory));
    else
      key = pool(c).entry<T>(slot, j);
    const float* weight = data<float>(c.tensors[WEIGHTS]) + i * heads;
    float sum = 0.0f;
    for (int64_t h = 0; h < heads; ++h) {
      const float match = lane_dot(q + h * width, key, width);
      sum += weight[h] * weight_scale_ * (match < 0.0f ? 0.0f : match);
    }
    return sum == sum ? sum : -__builtin_inff();
  }
  // `memory`: of the scratch, for one key.
  float score(const Call& c, int64_t i, int64_t slot, int64_t j, void* memory) const noexcept {
    return c.tensors[Q].dtype == DSV41C_FLOAT32 ? score<float>(c, i, slot, j, memory)
                                                : score<bf16>(c, i, slot, j, memory);
  }

  static void write_ascending(int32_t* out, int64_t width, const int32_t* order, int64_t chosen) {
    std::copy_n(order, chosen, out);
    std::fill(out + chosen, out + width, -1);
  }

  int64_t topk_, ratio_;
  float weight_scale_;
};

// ... -> selected [T,topk]
class IndexTopk : public IndexKernel {
 public:
  explicit IndexTopk(const Attributes& a) : IndexKernel(a) {}

  void check(const Call& c) const override {
    require(c.tensors.at(PAGES), "page_table", {DSV41C_INT32}, 2);
    require(c.tensors.at(KEYS), "keys", {DSV41C_FLOAT32, DSV41C_BFLOAT16, DSV41C_UINT8}, 3);
    check_inputs(c, pool(c).capacity());
    check_chosen(c.tensors.at(ROWS + 1), "selected", c.tensors[Q].sizes[0], topk_);
  }
  void run(const Call& c) const noexcept override {
    for (int64_t i = 0; i < c.tensors[Q].sizes[0]; ++i) select(c, i);
  }

 protected:
  // Fills the row's selection; leaves the scores of its visible entries in scratch and returns their number.
  int64_t select(const Call& c, int64_t i) const noexcept {
    const Scratch scratch(c.scratch, pool(c).capacity());
    const Row row = row_at(c.tensors[ROWS], i);
    const int64_t n = visible(c, row);
    for (int64_t j = 0; j < n; ++j) scratch.score[j] = score(c, i, row[SLOT], j, scratch.key);
    const int64_t chosen = choose(scratch.score, scratch.order, n, topk_);
    write_ascending(data<int32_t>(c.tensors[ROWS + 1]) + i * topk_, topk_, scratch.order, chosen);
    return n;
  }
};

// ... -> selected [T,topk], blocks [T,topk_blocks]
class IndexTopkBlocks final : public IndexTopk {
 public:
  explicit IndexTopkBlocks(const Attributes& a)
      : IndexTopk(a), block_size_(a.integer("block_size")), topk_blocks_(a.integer("topk_blocks")) {
    check_block_size(block_size_);
    if (topk_blocks_ < 1) throw std::invalid_argument("topk_blocks must be at least 1");
  }

  void check(const Call& c) const override {
    IndexTopk::check(c);
    check_chosen(c.tensors.at(ROWS + 2), "blocks", c.tensors[Q].sizes[0], topk_blocks_);
  }
  void run(const Call& c) const noexcept override {
    for (int64_t i = 0; i < c.tensors[Q].sizes[0]; ++i) select_blocks(c, i, select(c, i));
  }

 private:
  // Block scores overwrite the entry scores from the front: block b needs entries from b * block_size on only.
  void select_blocks(const Call& c, int64_t i, int64_t visible) const noexcept {
    const Scratch scratch(c.scratch, pool(c).capacity());
    const int64_t blocks = (visible + block_size_ - 1) / block_size_;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t end = std::min((b + 1) * block_size_, visible);
      const float best = *std::max_element(scratch.score + b * block_size_, scratch.score + end);
      scratch.score[b] = b + 1 == blocks ? __builtin_inff() : best;
    }
    const int64_t chosen = choose(scratch.score, scratch.order, blocks, topk_blocks_);
    write_ascending(data<int32_t>(c.tensors[ROWS + 2]) + i * topk_blocks_, topk_blocks_, scratch.order, chosen);
  }

  int64_t block_size_, topk_blocks_;
};

// ..., blocks [T,B] -> selected [T,topk]: only entries of the listed blocks take part
class IndexTopkWithin final : public IndexKernel {
  enum { BLOCKS = ROWS + 1, SELECTED };

 public:
  explicit IndexTopkWithin(const Attributes& a) : IndexKernel(a), block_size_(a.integer("block_size")) {
    check_block_size(block_size_);
  }

  void check(const Call& c) const override {
    const int64_t rows = c.tensors.at(Q).sizes[0];
    require(c.tensors.at(BLOCKS), "blocks", {DSV41C_INT32}, 2);
    require_size(c.tensors[BLOCKS], "blocks", 0, rows);
    if (c.tensors[BLOCKS].sizes[1] > std::numeric_limits<int32_t>::max() / block_size_)
      throw std::invalid_argument("blocks hold more entries than int32");
    check_inputs(c, candidates(c));
    check_chosen(c.tensors.at(SELECTED), "selected", rows, topk_);
  }

  void run(const Call& c) const noexcept override {
    const Scratch scratch(c.scratch, candidates(c));
    for (int64_t i = 0; i < c.tensors[Q].sizes[0]; ++i) {
      const Row row = row_at(c.tensors[ROWS], i);
      const int64_t n = visible(c, row), width = c.tensors[BLOCKS].sizes[1];
      const int32_t* blocks = data<int32_t>(c.tensors[BLOCKS]) + i * width;
      int64_t found = 0;
      for (int64_t b = 0; b < width; ++b)
        for (int64_t j = blocks[b] * block_size_; blocks[b] >= 0 && j < std::min((blocks[b] + 1) * block_size_, n); ++j)
          scratch.score[found++] = score(c, i, row[SLOT], j, scratch.key);
      const int64_t chosen = choose(scratch.score, scratch.order, found, topk_);
      ranks_to_entries(blocks, scratch.order, chosen);
      write_ascending(data<int32_t>(c.tensors[SELECTED]) + i * topk_, topk_, scratch.order, chosen);
    }
  }

 private:
  int64_t candidates(const Call& c) const { return c.tensors[BLOCKS].sizes[1] * block_size_; }

  // Blocks ascend without gaps before the padding and only the newest can be cut short, so the rank of a
  // candidate gives its block by division.
  void ranks_to_entries(const int32_t* blocks, int32_t* order, int64_t chosen) const noexcept {
    for (int64_t k = 0; k < chosen; ++k)
      order[k] = static_cast<int32_t>(blocks[order[k] / block_size_] * block_size_ + order[k] % block_size_);
  }

  int64_t block_size_;
};

template <class K>
std::unique_ptr<Kernel> make(const Attributes& a) {
  return std::make_unique<K>(a);
}

}  // namespace

std::vector<Entry> index_entries() {
  return {{"index_topk", make<IndexTopk>},
          {"index_topk_blocks", make<IndexTopkBlocks>},
          {"index_topk_within", make<IndexTopkWithin>}};
}

}  // namespace dsv41c::cpu
