// A method at one number of rows, bound to fixed addresses by a backend.
#pragma once

#include <cstdint>

namespace dsv41c {

class BoundMethod {
 public:
  explicit BoundMethod(int64_t rows) : rows_(rows) {}
  virtual ~BoundMethod() = default;
  BoundMethod(const BoundMethod&) = delete;
  BoundMethod& operator=(const BoundMethod&) = delete;

  int64_t rows() const { return rows_; }
  // Runs the launches, or puts them on the device's stream. E0802; allocates nothing unless it fails.
  virtual void run() const = 0;

 private:
  int64_t rows_;
};

}  // namespace dsv41c
