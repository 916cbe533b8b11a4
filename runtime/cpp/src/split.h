// How the rows of a step are cut into several replays of one method, and where each row lies after the last one.
#pragma once

#include <cstdint>

namespace dsv41c {

// The first replay takes what is left over, in its least bucket; all others fill the largest bucket without pads. Every
// replay writes the method's bridges from their first row on, so that the rows of all but the last are then copied
// behind the largest bucket. That fits: pads lie inside the bucket, and no row lies beyond the number of rows.
struct Split {
  int64_t rows = 0;
  int64_t top = 1;  // rows of the largest bucket

  int64_t parts() const { return (rows + top - 1) / top; }
  int64_t count(int64_t part) const { return part == 0 ? rows - (parts() - 1) * top : top; }
  // The row of the bridge that holds the method's row of this number.
  int64_t place(int64_t row) const { return row < rows - top ? row + top : row - (rows - top); }
};

}  // namespace dsv41c
