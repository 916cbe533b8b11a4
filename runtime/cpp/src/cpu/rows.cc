// Row tables: positions and groups of a step's rows, their selection, and the greedy token.
#include "lanes.h"
#include "row_view.h"
#include "upload_columns.h"

namespace dsv41c::cpu {
namespace {

// upload [T,5], slot_token [S+1], slot_position [S+1] (written), page_table [S+1,pages] (written), replay_floor [S+1]
// (written) -> rows [T,8]
class RowTable final : public Kernel {
 public:
  explicit RowTable(const Attributes& a) : block_size_(a.integer("block_size")) {}

  void check(const Call& c) const override {
    require(c.tensors.at(0), "upload", {DSV41C_INT32}, 2);
    require_size(c.tensors[0], "upload", 1, NUM_UPLOAD_COLUMNS);
    require(c.tensors.at(1), "slot_token", {DSV41C_INT32}, 1);
    require(c.tensors.at(2), "slot_position", {DSV41C_INT32}, 1);
    require_size(c.tensors[2], "slot_position", 0, c.tensors[1].sizes[0]);
    require(c.tensors.at(3), "page_table", {DSV41C_INT32}, 2);
    require_size(c.tensors[3], "page_table", 0, c.tensors[1].sizes[0]);
    require(c.tensors.at(4), "replay_floor", {DSV41C_INT32}, 1);
    require_size(c.tensors[4], "replay_floor", 0, c.tensors[1].sizes[0]);
    require_rows(c.tensors.at(5), c.tensors[0].sizes[0]);
    if (block_size_ < 1)
      throw std::invalid_argument("block_size " + std::to_string(block_size_) + ", needed at least 1");
  }

  void run(const Call& c) const noexcept override {
    const int64_t rows = c.tensors[0].sizes[0];
    for (int64_t first = 0; first < rows;) {
      int64_t end = first + 1;
      while (end < rows && continues(upload(c, end), upload(c, first))) ++end;
      group(c, first, end);
      first = end;
    }
  }

 private:
  static const int32_t* upload(const Call& c, int64_t i) {
    return data<int32_t>(c.tensors[0]) + i * NUM_UPLOAD_COLUMNS;
  }
  static bool continues(const int32_t* next, const int32_t* first) {
    return next[U_OFFSET] != 0 && next[U_SLOT] == first[U_SLOT] && !(next[U_FLAGS] & PAD);
  }

  void group(const Call& c, int64_t first, int64_t end) const noexcept {
    const int32_t* head = upload(c, first);
    const int64_t slot = Row::slot_in(c.tensors[2], head[U_SLOT]);
    int32_t* position = data<int32_t>(c.tensors[2]) + slot;
    const int32_t count = static_cast<int32_t>(end - first);
    const bool fresh =
        head[U_FLAGS] & START || *position < 0 || *position > std::numeric_limits<int32_t>::max() - count;
    const int32_t base = fresh ? 0 : *position;
    int32_t* held_floor = data<int32_t>(c.tensors[4]) + slot;
    const int32_t floor = base == 0 || head[U_FLAGS] & HIT ? base : *held_floor;
    for (int64_t i = first; i < end; ++i) {
      const int32_t* u = upload(c, i);
      int32_t* out = data<int32_t>(c.tensors[5]) + i * NUM_ROW_COLUMNS;
      out[SLOT] = u[U_SLOT];
      out[POSITION] = base + static_cast<int32_t>(i - first);
      out[BASE] = base;
      out[FIRST_ROW] = static_cast<int32_t>(first);
      out[COUNT] = count;
      out[TOKEN] = u[U_TOKEN] >= 0 ? u[U_TOKEN] : data<int32_t>(c.tensors[1])[slot];
      out[FLOOR] = floor;
      out[FLAGS] = u[U_FLAGS];
      map_page(c, slot, out[POSITION], u);
    }
    if (head[U_FLAGS] & PAD) return;
    *position = base + count;
    *held_floor = floor;
  }

  void map_page(const Call& c, int64_t slot, int64_t position, const int32_t* u) const noexcept {
    const int64_t pages = c.tensors[3].sizes[1], logical = position / block_size_;
    if (u[U_FLAGS] & PAD || u[U_PAGE] < 0 || logical >= pages) return;
    data<int32_t>(c.tensors[3])[slot * pages + logical] = u[U_PAGE];
  }

  int64_t block_size_;
};

// rows [T,8], index [R] -> rows [R,8]: the kept rows, regrouped; index -1 makes a pad row
class TakeRowTable final : public Kernel {
 public:
  explicit TakeRowTable(const Attributes& a) : num_slots_(static_cast<int32_t>(a.integer("num_slots"))) {}

  void check(const Call& c) const override {
    require_rows(c.tensors.at(0), c.tensors[0].sizes[0]);
    require(c.tensors.at(1), "index", {DSV41C_INT32}, 1);
    require_rows(c.tensors.at(2), c.tensors[1].sizes[0]);
  }

  void run(const Call& c) const noexcept override {
    const int64_t count = c.tensors[1].sizes[0];
    for (int64_t i = 0; i < count; ++i) copy(c, i);
    for (int64_t first = 0; first < count;) {
      int64_t end = first + 1;
      while (end < count && !taken(c, first).pad() && !taken(c, end).pad() &&
             taken(c, end)[SLOT] == taken(c, first)[SLOT])
        ++end;
      const int32_t base = taken(c, first).columns[POSITION];
      for (int64_t i = first; i < end; ++i) {
        int32_t* out = data<int32_t>(c.tensors[2]) + i * NUM_ROW_COLUMNS;
        out[BASE] = base;
        out[FIRST_ROW] = static_cast<int32_t>(first);
        out[COUNT] = static_cast<int32_t>(end - first);
      }
      first = end;
    }
  }

 private:
  static Row taken(const Call& c, int64_t i) { return row_at(c.tensors[2], i); }

  void copy(const Call& c, int64_t i) const noexcept {
    const int64_t from = data<int32_t>(c.tensors[1])[i];
    const int32_t pad[NUM_ROW_COLUMNS] = {num_slots_, 0, 0, 0, 1, 0, 0, START | PAD};
    const bool keep = from >= 0 && from < c.tensors[0].sizes[0];
    std::memcpy(data<int32_t>(c.tensors[2]) + i * NUM_ROW_COLUMNS, keep ? row_at(c.tensors[0], from).columns : pad,
                sizeof pad);
  }

  int32_t num_slots_;
};

// rows [R,8], window_floor [S+1] (written) -> rows [R,8] with the slot's floor, which a flagged row moves
class WindowFloor final : public Kernel {
 public:
  explicit WindowFloor(const Attributes&) {}

  void check(const Call& c) const override {
    require_rows(c.tensors.at(0), c.tensors[0].sizes[0]);
    require(c.tensors.at(1), "window_floor", {DSV41C_INT32}, 1);
    require_rows(c.tensors.at(2), c.tensors[0].sizes[0]);
  }

  void run(const Call& c) const noexcept override {
    for (int64_t i = 0; i < c.tensors[0].sizes[0]; ++i) {
      const Row row = row_at(c.tensors[0], i);
      int32_t* out = data<int32_t>(c.tensors[2]) + i * NUM_ROW_COLUMNS;
      std::memcpy(out, row.columns, NUM_ROW_COLUMNS * sizeof(int32_t));
      if (row.pad()) continue;
      int32_t* floor = data<int32_t>(c.tensors[1]) + row.slot(c.tensors[1]);
      if (row[POSITION] == 0 || row[FLAGS] & FLOOR_HERE) *floor = row.columns[POSITION];
      out[FLOOR] = *floor;
    }
  }
};

// logits [T,V], rows, slot_token [S+1] (written) -> token [T]; the last row of a slot sets its token
class GreedyToken final : public Kernel {
 public:
  explicit GreedyToken(const Attributes&) {}

  void check(const Call& c) const override {
    require(c.tensors.at(0), "logits", {DSV41C_FLOAT32}, 2);
    require_rows(c.tensors.at(1), c.tensors[0].sizes[0]);
    require(c.tensors.at(2), "slot_token", {DSV41C_INT32}, 1);
    require(c.tensors.at(3), "token", {DSV41C_INT32}, 1);
    require_size(c.tensors[3], "token", 0, c.tensors[0].sizes[0]);
  }

  void run(const Call& c) const noexcept override {
    const int64_t width = c.tensors[0].sizes[1];
    for (int64_t i = 0; i < c.tensors[0].sizes[0]; ++i) {
      const int32_t token = best(data<float>(c.tensors[0]) + i * width, width);
      data<int32_t>(c.tensors[3])[i] = token;
      const Row row = row_at(c.tensors[1], i);
      if (!row.pad() && row.among_last(1, i)) data<int32_t>(c.tensors[2])[row.slot(c.tensors[2])] = token;
    }
  }

 private:
  // Lowest index of the maximum; a comparison with NaN is false, so NaN never becomes the maximum.
  static int32_t best(const float* x, int64_t n) noexcept {
    constexpr float lowest = -__builtin_inff();
    Lanes lanes = {lowest, lowest, lowest, lowest, lowest, lowest, lowest, lowest};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const Lanes v = load_lanes(x + i);
      lanes = v > lanes ? v : lanes;
    }
    float top = lowest;
    for (int k = 0; k < 8; ++k) top = lanes[k] > top ? lanes[k] : top;
    for (; i < n; ++i) top = x[i] > top ? x[i] : top;
    for (int64_t j = 0; j < n; ++j)
      if (x[j] == top) return static_cast<int32_t>(j);
    return 0;
  }
};

}  // namespace

std::vector<Entry> row_entries() {
  return {
      {"row_table", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<RowTable>(a); }},
      {"take_row_table",
       [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<TakeRowTable>(a); }},
      {"window_floor", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<WindowFloor>(a); }},
      {"greedy_token", [](const Attributes& a) -> std::unique_ptr<Kernel> { return std::make_unique<GreedyToken>(a); }},
  };
}

}  // namespace dsv41c::cpu
