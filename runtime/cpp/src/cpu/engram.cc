// Engram: hashes of the last tokens, rows of the table, and the gate into the streams.
#include <algorithm>
#include <array>
#include <cmath>

#include "lanes.h"
#include "row_view.h"

namespace dsv41c::cpu {
namespace {

constexpr int MAX_NGRAM = 16;

// rows, token_map [V], multipliers [L,n], moduli [L,n-1,heads], offsets [L,(n-1)*heads], token_ring [S+1,HR]
// (written) -> ids [T,L,(n-1)*heads]
class EngramHash final : public Kernel {
  enum { ROWS, MAP, MULTIPLIERS, MODULI, OFFSETS, RING, IDS };

 public:
  explicit EngramHash(const Attributes& a) : pad_token_(a.integer("pad_token")) {}

  void check(const Call& c) const override {
    require_rows(c.tensors.at(ROWS), c.tensors[ROWS].sizes[0]);
    require(c.tensors.at(MAP), "token_map", {DSV41C_INT32}, 1);
    require(c.tensors.at(MULTIPLIERS), "multipliers", {DSV41C_INT64}, 2);
    const int64_t layers = c.tensors[MULTIPLIERS].sizes[0], n = c.tensors[MULTIPLIERS].sizes[1];
    if (n < 2 || n > MAX_NGRAM)
      throw std::invalid_argument("n-gram size " + std::to_string(n) + ", needed 2 to " + std::to_string(MAX_NGRAM));
    if (pad_token_ < 0 || pad_token_ >= c.tensors[MAP].sizes[0])
      throw std::invalid_argument("pad_token " + std::to_string(pad_token_) + " lies outside token_map");
    require(c.tensors.at(MODULI), "moduli", {DSV41C_INT64}, 3);
    require_size(c.tensors[MODULI], "moduli", 0, layers);
    require_size(c.tensors[MODULI], "moduli", 1, n - 1);
    const int64_t columns = (n - 1) * c.tensors[MODULI].sizes[2];
    require(c.tensors.at(OFFSETS), "offsets", {DSV41C_INT64}, 2);
    require_size(c.tensors[OFFSETS], "offsets", 0, layers);
    require_size(c.tensors[OFFSETS], "offsets", 1, columns);
    require(c.tensors.at(RING), "token_ring", {DSV41C_INT32}, 2);
    if (c.tensors[RING].sizes[1] < n - 1)
      throw std::invalid_argument("token_ring of " + std::to_string(c.tensors[RING].sizes[1]) + " tokens, needed " +
                                  std::to_string(n - 1));
    require(c.tensors.at(IDS), "ids", {DSV41C_INT32}, 3);
    require_size(c.tensors[IDS], "ids", 0, c.tensors[ROWS].sizes[0]);
    require_size(c.tensors[IDS], "ids", 1, layers);
    require_size(c.tensors[IDS], "ids", 2, columns);
  }

  void run(const Call& c) const noexcept override {
    const int64_t rows = c.tensors[ROWS].sizes[0], ring = c.tensors[RING].sizes[1];
    for (int64_t i = 0; i < rows; ++i) hash(c, i);
    for (int64_t i = 0; i < rows; ++i) {
      const Row row = row_at(c.tensors[ROWS], i);
      if (row.pad() || !row.stands_at(i, rows) || !row.among_last(ring, i)) continue;
      data<int32_t>(c.tensors[RING])[row.slot(c.tensors[RING]) * ring + row[POSITION] % ring] = raw_token(row);
    }
  }

 private:
  static int32_t raw_token(const Row& row) { return row.image() ? -1 : static_cast<int32_t>(row[TOKEN]); }

  static int32_t token_at(const Call& c, const Row& row, int64_t position) {
    if (position < 0) return -1;
    if (position >= row[BASE]) return raw_token(row_at(c.tensors[ROWS], row[FIRST_ROW] + position - row[BASE]));
    const int64_t ring = c.tensors[RING].sizes[1];
    return data<int32_t>(c.tensors[RING])[row.slot(c.tensors[RING]) * ring + position % ring];
  }

  // In 64 bits, whatever the weights hold.
  static int64_t product(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }

  void hash(const Call& c, int64_t i) const noexcept {
    const auto& moduli = c.tensors[MODULI];
    const int64_t layers = moduli.sizes[0], n = moduli.sizes[1] + 1, heads = moduli.sizes[2], columns = (n - 1) * heads;
    std::array<int64_t, MAX_NGRAM> id{};
    look_back(c, i, n, id);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t* multiplier = data<int64_t>(c.tensors[MULTIPLIERS]) + layer * n;
      const int64_t *modulus = data<int64_t>(moduli) + layer * columns,
                    *offset = data<int64_t>(c.tensors[OFFSETS]) + layer * columns;
      int32_t* out = data<int32_t>(c.tensors[IDS]) + (i * layers + layer) * columns;
      int64_t value = product(id[0], multiplier[0]);
      for (int64_t k = 1; k < n; ++k) {
        value ^= product(id[k], multiplier[k]);
        for (int64_t at = (k - 1) * heads; at < k * heads; ++at)
          out[at] =
              modulus[at] > 0
                  ? static_cast<int32_t>(static_cast<uint64_t>(value % modulus[at]) + static_cast<uint64_t>(offset[at]))
                  : -1;
      }
    }
  }

  // Compressed ids of the row's token and the n-1 before it. An image row (or the start of the sequence)
  // hides itself and everything older behind the pad token.
  void look_back(const Call& c, int64_t i, int64_t n, std::array<int64_t, MAX_NGRAM>& id) const noexcept {
    const Row row = row_at(c.tensors[ROWS], i);
    const int32_t* map = data<int32_t>(c.tensors[MAP]);
    bool open = row.stands_at(i, c.tensors[ROWS].sizes[0]);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t raw = open ? token_at(c, row, row[POSITION] - k) : -1;
      open = raw >= 0 && raw < c.tensors[MAP].sizes[0];
      id[k] = map[open ? raw : pad_token_];
    }
  }

  int64_t pad_token_;
};

std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) values[code] = e4m3_to_float(static_cast<uint8_t>(code));
  return values;
}

// ids [T,L,K], table e4m3 [R,hd], scale e8m0 [R,hd/group] -> [T,K*hd]
class EngramLookup final : public Kernel {
  enum { IDS, TABLE, SCALE, OUT };

 public:
  explicit EngramLookup(const Attributes& a)
      : layer_(a.integer("layer")), dtype_(a.dtype("dtype")), value_(e4m3_values()) {}

  void check(const Call& c) const override {
    const auto &ids = c.tensors.at(IDS), &table = c.tensors.at(TABLE), &scale = c.tensors.at(SCALE);
    require(ids, "ids", {DSV41C_INT32}, 3);
    if (layer_ < 0 || layer_ >= ids.sizes[1])
      throw std::invalid_argument("layer " + std::to_string(layer_) + " of " + std::to_string(ids.sizes[1]));
    require(table, "table", {DSV41C_FLOAT8_E4M3FN}, 2);
    require(scale, "scale", {DSV41C_FLOAT8_E8M0FNU}, 2);
    require_size(scale, "scale", 0, table.sizes[0]);
    if (table.sizes[1] % scale.sizes[1] != 0)
      throw std::invalid_argument("table width " + std::to_string(table.sizes[1]) + " is no multiple of " +
                                  std::to_string(scale.sizes[1]) + " scale groups");
    require(c.tensors.at(OUT), "out", {dtype_}, 2);
    require_size(c.tensors[OUT], "out", 0, ids.sizes[0]);
    require_size(c.tensors[OUT], "out", 1, ids.sizes[2] * table.sizes[1]);
  }

  void run(const Call& c) const noexcept override { dtype_ == DSV41C_FLOAT32 ? run_as<float>(c) : run_as<bf16>(c); }

 private:
  template <class T>
  void run_as(const Call& c) const noexcept {
    const auto &ids = c.tensors[IDS], &table = c.tensors[TABLE];
    const int64_t picks = ids.sizes[2], width = table.sizes[1], groups = c.tensors[SCALE].sizes[1],
                  group = width / groups;
    for (int64_t i = 0; i < ids.sizes[0]; ++i)
      for (int64_t k = 0; k < picks; ++k) {
        const int64_t id = data<int32_t>(ids)[(i * ids.sizes[1] + layer_) * picks + k];
        T* out = data<T>(c.tensors[OUT]) + (i * picks + k) * width;
        const bool known = id >= 0 && id < table.sizes[0];  // foreign ids give zeros, as in the embedding
        for (int64_t d = 0; d < width; ++d)
          out[d] = from_float<T>(known ? value_[data<uint8_t>(table)[id * width + d]] *
                                             e8m0_to_float(data<uint8_t>(c.tensors[SCALE])[id * groups + d / group])
                                       : 0.0f);
      }
  }

  int64_t layer_;
  int32_t dtype_;
  std::array<float, 256> value_;
};

// streams [T,S,H], kv [T,(S+1)*H] (S keys, then the value), q_weight [S,H], k_weight [S,H], rows -> [T,S,H]
class EngramGate final : public Kernel {
  enum { STREAMS, KV, Q_WEIGHT, K_WEIGHT, ROWS, OUT };

 public:
  explicit EngramGate(const Attributes& a) : eps_(static_cast<float>(a.real("eps"))) {}

  void check(const Call& c) const override {
    const auto& streams = c.tensors.at(STREAMS);
    require(streams, "streams", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 3);
    require(c.tensors.at(KV), "kv", {streams.dtype}, 2);
    require_size(c.tensors[KV], "kv", 0, streams.sizes[0]);
    require_size(c.tensors[KV], "kv", 1, (streams.sizes[1] + 1) * streams.sizes[2]);
    for (int at : {Q_WEIGHT, K_WEIGHT}) {
      require(c.tensors.at(at), "weight", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 2);
      require_size(c.tensors[at], "weight", 0, streams.sizes[1]);
      require_size(c.tensors[at], "weight", 1, streams.sizes[2]);
    }
    require_size(c.tensors[K_WEIGHT], "k_weight", 0, c.tensors[Q_WEIGHT].sizes[0]);
    if (c.tensors[K_WEIGHT].dtype != c.tensors[Q_WEIGHT].dtype)
      throw std::invalid_argument("q_weight and k_weight differ in dtype");
    require_rows(c.tensors.at(ROWS), streams.sizes[0]);
    require(c.tensors.at(OUT), "out", {streams.dtype}, 3);
    for (int d = 0; d < 3; ++d) require_size(c.tensors[OUT], "out", d, streams.sizes[d]);
  }

  void run(const Call& c) const noexcept override {
    const bool wide = c.tensors[Q_WEIGHT].dtype == DSV41C_FLOAT32;
    if (c.tensors[STREAMS].dtype == DSV41C_FLOAT32)
      wide ? run_as<float, float>(c) : run_as<float, bf16>(c);
    else
      wide ? run_as<bf16, float>(c) : run_as<bf16, bf16>(c);
  }

 private:
  template <class T, class W>
  void run_as(const Call& c) const noexcept {
    const auto& t = c.tensors[STREAMS];
    const int64_t streams = t.sizes[1], width = t.sizes[2];
    for (int64_t i = 0; i < t.sizes[0]; ++i) {
      const T* keys = data<T>(c.tensors[KV]) + i * (streams + 1) * width;
      const T* value = keys + streams * width;
      const bool image = row_at(c.tensors[ROWS], i).image();
      for (int64_t s = 0; s < streams; ++s) {
        const T* x = data<T>(t) + (i * streams + s) * width;
        T* out = data<T>(c.tensors[OUT]) + (i * streams + s) * width;
        if (image) {
          std::copy_n(x, width, out);
          continue;
        }
        const float open = gate(x, keys + s * width, data<W>(c.tensors[Q_WEIGHT]) + s * width,
                                data<W>(c.tensors[K_WEIGHT]) + s * width, width);
        for (int64_t d = 0; d < width; ++d) out[d] = from_float<T>(to_float(x[d]) + open * to_float(value[d]));
      }
    }
  }

  template <class T, class W>
  float gate(const T* x, const T* key, const W* qw, const W* kw, int64_t width) const noexcept {
    const float n = static_cast<float>(width);
    const float match = weighted_dot(x, key, qw, kw, width);
    const float d = match / std::sqrt(n) / std::sqrt(lane_dot(x, x, width) / n + eps_) /
                    std::sqrt(lane_dot(key, key, width) / n + eps_);
    const float size = std::sqrt(std::max(std::fabs(d), 1e-6f));  // NaN stays NaN
    return 1.0f / (1.0f + std::exp(d == 0.0f ? 0.0f : -std::copysign(size, d)));
  }

  template <class T, class W>
  static float weighted_dot(const T* x, const T* key, const W* qw, const W* kw, int64_t width) noexcept {
    Lanes even{}, odd{};
    int64_t d = 0;
    for (; d + 16 <= width; d += 16) {
      even += load_lanes(x + d) * load_lanes(qw + d) * (load_lanes(kw + d) * load_lanes(key + d));
      odd += load_lanes(x + d + 8) * load_lanes(qw + d + 8) * (load_lanes(kw + d + 8) * load_lanes(key + d + 8));
    }
    float sum = sum_lanes(even + odd);
    for (; d < width; ++d) sum += to_float(x[d]) * to_float(qw[d]) * (to_float(kw[d]) * to_float(key[d]));
    return sum;
  }

  float eps_;
};

template <class K>
std::unique_ptr<Kernel> make(const Attributes& a) {
  return std::make_unique<K>(a);
}

}  // namespace

std::vector<Entry> engram_entries() {
  return {{"engram_hash", make<EngramHash>}, {"engram_lookup", make<EngramLookup>}, {"engram_gate", make<EngramGate>}};
}

}  // namespace dsv41c::cpu
