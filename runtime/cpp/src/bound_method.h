// A method at one number of rows: every launch bound to fixed addresses.
#pragma once

#include <vector>

#include "kernel_table.h"
#include "plan.h"
#include "reservation.h"
#include "safetensors.h"

namespace dsv41c {

// Where the storage kinds of a plan live.
struct Regions {
  const Plan* plan = nullptr;
  const Reservation* reservation = nullptr;
  const std::vector<const StoredTensor*>* weights = nullptr;

  dsv41c_tensor tensor(const Method& method, int64_t value, const Symbols& symbols) const;

 private:
  uint8_t* address(const Method& method, const Value& value, const Symbols& symbols) const;
};

struct FrozenLaunch {
  const dsv41c_provider* provider;
  void* bound;
  const Launch* launch;
};

class BoundMethod {
 public:
  // `code` is the error code of a refusal: E0703 while loading, E0802 inside an eager step.
  BoundMethod(const Method& method, int64_t rows, const Regions& regions, const KernelTable& kernels,
              std::string_view code);
  ~BoundMethod();
  BoundMethod(const BoundMethod&) = delete;
  BoundMethod& operator=(const BoundMethod&) = delete;

  int64_t rows() const { return rows_; }
  const std::vector<FrozenLaunch>& launches() const { return launches_; }
  void run() const;  // E0802; allocates nothing unless it fails

 private:
  void bind(const Launch& launch, const Regions& regions, const KernelTable& kernels, std::string_view code);
  void unbind() noexcept;

  const Method& method_;
  int64_t rows_;
  std::vector<FrozenLaunch> launches_;
};

}  // namespace dsv41c
