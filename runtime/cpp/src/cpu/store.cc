// Writes of per-slot rings and paged pools. Pad rows never write, replayed ones only to windows; no position is written
// twice in a launch.
#include <cmath>

#include "row_view.h"

namespace dsv41c::cpu {
namespace {

// window_kv [T,D], rows, window [S+1,ring,D] (written)
class WindowCommit final : public Kernel {
 public:
  explicit WindowCommit(const Attributes&) {}

  void check(const Call& c) const override {
    const auto& kv = c.tensors.at(0);
    require(kv, "window_kv", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
    require_rows(c.tensors.at(1), kv.sizes[0]);
    require_state(c.tensors.at(2), "window", kv.dtype, kv.sizes[1]);
  }

  void run(const Call& c) const noexcept override {
    if (c.tensors[0].dtype == DSV41C_FLOAT32) return run_as<float>(c);
    run_as<bf16>(c);
  }

 private:
  template <class T>
  static void run_as(const Call& c) noexcept {
    const auto &kv = c.tensors[0], &window = c.tensors[2];
    const int64_t width = kv.sizes[1], ring = window.sizes[1];
    const Packing packing = packing_of(window, width);
    const int64_t bytes = window.sizes[2] * (packing == Packing::NONE ? sizeof(T) : 1);
    for (int64_t i = 0; i < kv.sizes[0]; ++i) {
      const Row row = row_at(c.tensors[1], i);
      if (row.pad() || !row.stands_at(i, kv.sizes[0]) || !row.among_last(ring, i)) continue;
      store_row(packing, data<T>(kv) + i * width, width,
                data<char>(window) + (row.slot(window) * ring + row[POSITION] % ring) * bytes);
    }
  }
};

// kv [T,D], gate [T,D], rows, pair [S+1,PR,2,D] (written) -> latent [T,D]
class CompressPairs final : public Kernel {
 public:
  explicit CompressPairs(const Attributes& a) : dtype_(a.dtype("dtype")) {}

  void check(const Call& c) const override {
    const auto& kv = c.tensors.at(0);
    require(kv, "kv", {DSV41C_FLOAT32}, 2);
    require(c.tensors.at(1), "gate", {DSV41C_FLOAT32}, 2);
    require_size(c.tensors[1], "gate", 0, kv.sizes[0]);
    require_size(c.tensors[1], "gate", 1, kv.sizes[1]);
    require_rows(c.tensors.at(2), kv.sizes[0]);
    require(c.tensors.at(3), "pair", {DSV41C_FLOAT32}, 4);
    require_size(c.tensors[3], "pair", 2, 2);
    require_size(c.tensors[3], "pair", 3, kv.sizes[1]);
    require(c.tensors.at(4), "latent", {dtype_}, 2);
    require_size(c.tensors[4], "latent", 0, kv.sizes[0]);
    require_size(c.tensors[4], "latent", 1, kv.sizes[1]);
  }

  // Every partner is read before the first commit: a slot's first row may need what its last rows replace.
  void run(const Call& c) const noexcept override {
    const int64_t rows = c.tensors[0].sizes[0];
    for (int64_t i = 0; i < rows; ++i) dtype_ == DSV41C_FLOAT32 ? combine<float>(c, i) : combine<bf16>(c, i);
    for (int64_t i = 0; i < rows; ++i) commit(c, i);
  }

 private:
  static float* saved(const Call& c, const Row& row, int64_t position) {
    const auto& pair = c.tensors[3];
    return data<float>(pair) + (row.slot(pair) * pair.sizes[1] + position % pair.sizes[1]) * 2 * pair.sizes[3];
  }

  template <class T>
  static void combine(const Call& c, int64_t i) noexcept {
    const int64_t width = c.tensors[0].sizes[1];
    const float *kv1 = data<float>(c.tensors[0]) + i * width, *gate1 = data<float>(c.tensors[1]) + i * width;
    T* out = data<T>(c.tensors[4]) + i * width;
    const Row row = row_at(c.tensors[2], i);
    if (row[POSITION] % 2 == 0 || row.replayed() || !row.stands_at(i, c.tensors[2].sizes[0])) {
      for (int64_t d = 0; d < width; ++d) out[d] = from_float<T>(0.0f);
      return;
    }
    const bool in_step = row[POSITION] - 1 >= row[BASE];
    const float* kv0 = in_step ? kv1 - width : saved(c, row, row[POSITION] - 1);
    const float* gate0 = in_step ? gate1 - width : kv0 + width;
    for (int64_t d = 0; d < width; ++d) {
      const float top = gate0[d] > gate1[d] ? gate0[d] : gate1[d];
      const float e0 = std::exp(gate0[d] - top), e1 = std::exp(gate1[d] - top);
      out[d] = from_float<T>((e0 * kv0[d] + e1 * kv1[d]) / (e0 + e1));
    }
  }

  static void commit(const Call& c, int64_t i) noexcept {
    const int64_t width = c.tensors[0].sizes[1];
    const Row row = row_at(c.tensors[2], i);
    if (row.stores_none() || !row.stands_at(i, c.tensors[2].sizes[0]) || !row.among_last(c.tensors[3].sizes[1], i))
      return;
    float* to = saved(c, row, row[POSITION]);
    std::memcpy(to, data<float>(c.tensors[0]) + i * width, width * 4);
    std::memcpy(to + width, data<float>(c.tensors[1]) + i * width, width * 4);
  }

  int32_t dtype_;
};

// entry [T,D], rows, page_table, pool [P+1,block/ratio,D] (written): rows that complete a group store it
class EntryStore final : public Kernel {
 public:
  explicit EntryStore(const Attributes& a) : ratio_(a.integer("ratio")) {
    if (ratio_ < 1) throw std::invalid_argument("ratio " + std::to_string(ratio_) + ", needed at least 1");
  }

  void check(const Call& c) const override {
    const auto& entry = c.tensors.at(0);
    require(entry, "entry", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
    require_rows(c.tensors.at(1), entry.sizes[0]);
    require_pool(c.tensors.at(3), "pool", c.tensors.at(2), entry.dtype, entry.sizes[1]);
  }

  void run(const Call& c) const noexcept override {
    if (c.tensors[0].dtype == DSV41C_FLOAT32) return run_as<float>(c);
    run_as<bf16>(c);
  }

 private:
  template <class T>
  void run_as(const Call& c) const noexcept {
    const PagedPool pool{c.tensors[3], c.tensors[2]};
    const int64_t width = c.tensors[0].sizes[1];
    const Packing packing = packing_of(c.tensors[3], width);
    for (int64_t i = 0; i < c.tensors[0].sizes[0]; ++i) {
      const Row row = row_at(c.tensors[1], i);
      const int64_t j = row[POSITION] / ratio_;
      if (row.stores_none() || (row[POSITION] + 1) % ratio_ != 0 || pool.page(row[SLOT], j) == pool.trash()) continue;
      void* to = packing == Packing::NONE ? static_cast<void*>(pool.entry<T>(row[SLOT], j))
                                          : pool.entry<uint8_t>(row[SLOT], j);
      store_row(packing, data<T>(c.tensors[0]) + i * width, width, to);
    }
  }

  int64_t ratio_;
};

}  // namespace

std::vector<Entry> store_entries() {
  return {
      {"window_commit",
       [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<WindowCommit>(a); }},
      {"compress_pairs",
       [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<CompressPairs>(a); }},
      {"entry_store", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<EntryStore>(a); }},
  };
}

}  // namespace dsv41c::cpu
