// An input of a method: which list of the step fills it, and where its launches read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dsv41c {

enum class InputSource { upload, keep_rows, logit_rows };

struct InputPort {
  InputSource source;
  int32_t* data;             // on the device
  int64_t staging;           // byte offset among all inputs, for devices whose inputs are copied
  std::vector<int32_t> pad;  // one row

  int64_t columns() const { return static_cast<int64_t>(pad.size()); }
  // Writes `rows` rows of the list and pad rows up to `launched_rows`.
  void fill(int32_t* to, const int32_t* list, int64_t rows, int64_t launched_rows) const {
    std::copy_n(list, rows * columns(), to);
    for (int64_t row = rows; row < launched_rows; ++row) std::ranges::copy(pad, to + row * columns());
  }
};

}  // namespace dsv41c
