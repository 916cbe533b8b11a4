// Attention of one row over window keys and selected entries: one vector is key and value for all heads.
#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "row_view.h"

namespace dsv41c::cpu {
namespace {

// Scratch of one row: addresses of its keys, the scores of one head, the sum of one head and, where state is packed,
// the keys that were unpacked.
struct Scratch {
  static int64_t bytes(int64_t keys, int64_t width, int64_t unpacked_bytes) {
    return keys * 8 + (keys + width) * 4 + unpacked_bytes;
  }
  Scratch(void* memory, int64_t keys, int64_t width)
      : key(static_cast<const void**>(memory)),
        score(reinterpret_cast<float*>(key + keys)),
        sum(score + keys),
        unpacked(sum + width) {}
  const void** key;
  float* score;
  float* sum;
  void* unpacked;
};

// Two passes (maximum, then weights): no running rescale that could meet -inf - -inf. Keys are visited in the
// order of the list; the sink joins the maximum and the denominator only. No keys give zeros.
template <class T>
void attend(const T* q, int64_t width, int64_t keys, float sink, float scale, const Scratch& s, T* out) noexcept {
  if (keys == 0) {
    std::fill_n(out, width, from_float<T>(0.0f));
    return;
  }
  float top = sink;
  for (int64_t i = 0; i < keys; ++i) {
    s.score[i] = lane_dot(q, static_cast<const T*>(s.key[i]), width) * scale;
    top = s.score[i] > top ? s.score[i] : top;
  }
  std::fill_n(s.sum, width, 0.0f);
  float total = 0.0f;
  for (int64_t i = 0; i < keys; ++i) {
    const float weight = std::exp(s.score[i] - top);
    total += weight;
    add_scaled(s.sum, weight, static_cast<const T*>(s.key[i]), width);
  }
  total += std::exp(sink - top);
  for (int64_t d = 0; d < width; ++d) out[d] = from_float<T>(s.sum[d] / total);
}

enum class Form { WINDOW, DRAFT, SPARSE };

// Tensors: q [T,N,D], window_kv [T,D], window [S+1,ring,D], (compressed, page_table, selected [T,K] when SPARSE),
// sink [N], rows [T,8] -> [T,N,D]
template <Form form>
class Attention final : public Kernel {
  static constexpr bool sparse = form == Form::SPARSE;
  enum { Q, KV, WINDOW, COMPRESSED, PAGES, SELECTED, SINK = sparse ? 6 : 3, ROWS, OUT };

 public:
  explicit Attention(const Attributes& a)
      : window_size_(a.integer("window_size")), scale_(static_cast<float>(a.real("scale"))) {
    if constexpr (sparse) a.integer("ratio");  // declared by the op; entries are addressed by id alone
  }

  void check(const Call& c) const override {
    const auto& q = c.tensors.at(Q);
    require(q, "q", {DSV41C_FLOAT32, DSV41C_BFLOAT16}, 3);
    const int64_t rows = q.sizes[0], width = q.sizes[2];
    require(c.tensors.at(KV), "window_kv", {q.dtype}, 2);
    require_size(c.tensors[KV], "window_kv", 0, rows);
    require_size(c.tensors[KV], "window_kv", 1, width);
    bool packed = require_state(c.tensors.at(WINDOW), "window", q.dtype, width) != Packing::NONE;
    if (window_size_ < 1)
      throw std::invalid_argument("window_size " + std::to_string(window_size_) + ", needed at least 1");
    if (c.tensors[WINDOW].sizes[1] < window_size_)
      throw std::invalid_argument("window of " + std::to_string(c.tensors[WINDOW].sizes[1]) +
                                  " positions, needed at least " + std::to_string(window_size_));
    if constexpr (sparse) {
      require_pool(c.tensors.at(COMPRESSED), "compressed", c.tensors.at(PAGES), q.dtype, width);
      require(c.tensors.at(SELECTED), "selected", {DSV41C_INT32}, 2);
      require_size(c.tensors[SELECTED], "selected", 0, rows);
      packed |= c.tensors[COMPRESSED].dtype == DSV41C_UINT8;
    }
    require(c.tensors.at(SINK), "sink", {DSV41C_FLOAT32}, 1);
    require_size(c.tensors[SINK], "sink", 0, q.sizes[1]);
    require_rows(c.tensors.at(ROWS), rows);
    require(c.tensors.at(OUT), "out", {q.dtype}, 3);
    for (int d = 0; d < 3; ++d) require_size(c.tensors[OUT], "out", d, q.sizes[d]);
    const int64_t item = q.dtype == DSV41C_FLOAT32 ? 4 : 2;
    require_scratch(c, Scratch::bytes(max_keys(c), width, packed ? max_keys(c) * width * item : 0));
  }

  void run(const Call& c) const noexcept override {
    if (c.tensors[Q].dtype == DSV41C_FLOAT32) return run_as<float>(c);
    run_as<bf16>(c);
  }

 private:
  int64_t max_keys(const Call& c) const {
    if constexpr (sparse) return window_size_ + c.tensors[SELECTED].sizes[1];
    return form == Form::DRAFT ? window_size_ + c.tensors[Q].sizes[0] : window_size_;
  }

  template <class T>
  void run_as(const Call& c) const noexcept {
    const auto& q = c.tensors[Q];
    const int64_t heads = q.sizes[1], width = q.sizes[2];
    const Scratch scratch(c.scratch, max_keys(c), width);
    for (int64_t i = 0; i < q.sizes[0]; ++i) {
      const int64_t keys = gather<T>(c, i, scratch);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = (i * heads + h) * width;
        attend(data<T>(q) + at, width, keys, data<float>(c.tensors[SINK])[h], scale_, scratch,
               data<T>(c.tensors[OUT]) + at);
      }
    }
  }

  // Addresses of the row's keys: window positions ascending (ring before BASE, this step's rows from BASE on),
  // then the selected entries in their order; packed ones are unpacked first. None for a row that is no row of a table.
  template <class T>
  int64_t gather(const Call& c, int64_t index, const Scratch& scratch) const noexcept {
    const Row row = row_at(c.tensors[ROWS], index);
    if (!row.stands_at(index, c.tensors[ROWS].sizes[0])) return 0;
    const auto& window = c.tensors[WINDOW];
    const int64_t slot = row.slot(window);
    const int64_t width = c.tensors[Q].sizes[2], ring = window.sizes[1];
    const int64_t from = form == Form::DRAFT ? row[BASE] - window_size_ : row[POSITION] - window_size_ + 1;
    const int64_t last = form == Form::DRAFT ? row[BASE] + row[COUNT] - 1 : row[POSITION];
    int64_t keys = 0;
    const auto take = [&](Packing packing, const dsv41c_tensor& state, int64_t at) {
      if (packing == Packing::NONE) {
        scratch.key[keys++] = data<T>(state) + at * width;
        return;
      }
      T* to = static_cast<T*>(scratch.unpacked) + keys * width;
      unpack_row(packing, data<uint8_t>(state) + at * state.sizes[2], width, to);
      scratch.key[keys++] = to;
    };
    const Packing held = packing_of(window, width);
    for (int64_t u = std::max({from, row[FLOOR], int64_t{0}}); u <= last; ++u) {
      if (u >= row[BASE])
        take(Packing::NONE, c.tensors[KV], row[FIRST_ROW] + u - row[BASE]);
      else
        take(held, window, slot * ring + u % ring);
    }
    if constexpr (sparse) {
      const PagedPool pool{c.tensors[COMPRESSED], c.tensors[PAGES]};
      const Packing packing = packing_of(c.tensors[COMPRESSED], width);
      const int64_t selections = c.tensors[SELECTED].sizes[1];
      const int32_t* selected = data<int32_t>(c.tensors[SELECTED]) + index * selections;
      for (int64_t k = 0; k < selections; ++k)
        if (selected[k] >= 0) take(packing, c.tensors[COMPRESSED], pool.index(row[SLOT], selected[k]));
    }
    return keys;
  }

  int64_t window_size_;
  float scale_;
};

template <Form form>
std::unique_ptr<Kernel> make(const Attributes& a) {
  return std::make_unique<Attention<form>>(a);
}

}  // namespace

std::vector<Entry> attention_entries() {
  return {{"window_attention", make<Form::WINDOW>},
          {"draft_attention", make<Form::DRAFT>},
          {"sparse_attention", make<Form::SPARSE>}};
}

}  // namespace dsv41c::cpu
