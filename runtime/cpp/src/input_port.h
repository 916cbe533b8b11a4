// An input of a method: which list of the step fills it, and where its launches read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "upload.h"

namespace dsv41c {

enum class InputSource { upload, keep_rows, logit_rows };

// Which rows of a list one run of a method takes.
struct InputRows {
  int64_t first = 0;
  int64_t count = 0;
  int64_t launched = 0;  // with pad rows
  int64_t staged = 0;    // rows that earlier runs of the same method and step have staged
};

struct InputPort {
  InputSource source;
  int32_t* data;             // on the device
  int64_t staging;           // byte offset among all inputs, for devices whose inputs are copied
  std::vector<int32_t> pad;  // one row

  int64_t columns() const { return static_cast<int64_t>(pad.size()); }
  // Writes the rows of the list and pad rows behind them.
  void fill(int32_t* to, const int32_t* list, const InputRows& rows) const {
    std::copy_n(list + rows.first * columns(), rows.count * columns(), to);
    for (int64_t row = rows.count; row < rows.launched; ++row) std::ranges::copy(pad, to + row * columns());
    if (source == InputSource::upload && rows.first > 0) continue_slot(to, rows.count);
  }

 private:
  // Rows of a slot that an earlier run has begun count from its first row in this one, and do not start the slot again.
  static void continue_slot(int32_t* upload, int64_t count) {
    const int32_t slot = upload[SLOT], taken = upload[OFFSET];
    if (taken == 0) return;
    for (int32_t* row = upload; row < upload + count * NUM_UPLOAD_COLUMNS && row[SLOT] == slot;
         row += NUM_UPLOAD_COLUMNS) {
      row[OFFSET] -= taken;
      row[FLAGS] &= ~START;
    }
  }
};

}  // namespace dsv41c
