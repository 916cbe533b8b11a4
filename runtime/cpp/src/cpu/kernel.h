// Base of the native CPU kernels: attributes, tensor access, the registry of entries.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "dsv41c/provider.h"

namespace dsv41c::cpu {

// Attributes of a kernel body: integers, booleans and strings as JSON has them, floats as {"f": "0x1p-3"},
// dtypes as {"dtype": "bfloat16"}. A missing or ill-typed attribute throws std::invalid_argument.
class Attributes {
 public:
  explicit Attributes(nlohmann::json values) : values_(std::move(values)) {}
  int64_t integer(const char* name) const;
  double real(const char* name) const;
  bool flag(const char* name) const;
  int32_t dtype(const char* name) const;

 private:
  const nlohmann::json& at(const char* name) const;
  nlohmann::json values_;
};

struct Call {
  std::vector<dsv41c_tensor> tensors;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

// check runs at bind and throws std::invalid_argument with values; run must neither throw nor allocate.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void check(const Call& call) const = 0;
  virtual void run(const Call& call) const noexcept = 0;
};

using Factory = std::unique_ptr<Kernel> (*)(const Attributes&);

struct Entry {
  const char* name;
  Factory make;
};

// One function per source file lists the entries that it defines.
std::vector<Entry> row_entries();        // rows.cc: row_table, take_row_table, greedy_token
std::vector<Entry> linear_entries();     // linear.cc: linear, grouped_linear
std::vector<Entry> mhc_entries();        // mhc.cc: mhc_mix
std::vector<Entry> moe_entries();        // moe.cc: moe_route, swiglu
std::vector<Entry> expert_entries();     // experts.cc: moe_experts
std::vector<Entry> attention_entries();  // attention.cc: window_, draft_, sparse_attention
std::vector<Entry> store_entries();      // store.cc: window_commit, compress_pairs, entry_store
std::vector<Entry> index_entries();      // index.cc: index_topk, index_topk_blocks, index_topk_within
std::vector<Entry> engram_entries();     // engram.cc: engram_hash, engram_lookup, engram_gate
std::vector<Entry> draft_entries();      // draft.cc: draft_row_table, sigmoid

// Throws std::invalid_argument unless the tensor has this dtype (one of `dtypes`), rank and is contiguous.
void require(const dsv41c_tensor& t, const char* name, std::initializer_list<int32_t> dtypes, int ndim);
// Throws unless size `dim` of t equals `expected`.
void require_size(const dsv41c_tensor& t, const char* name, int dim, int64_t expected);
void require_scratch(const Call& call, int64_t bytes);

template <class T>
T* data(const dsv41c_tensor& t) {
  return static_cast<T*>(t.data);
}

// --- number formats -------------------------------------------------------------------------------------
struct bf16 {
  uint16_t bits;
};

inline float to_float(float v) { return v; }
inline float to_float(bf16 v) {
  uint32_t u = static_cast<uint32_t>(v.bits) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
template <class T>
T from_float(float v);
template <>
inline float from_float<float>(float v) {
  return v;
}
// Round to nearest even; NaN keeps its sign and becomes quiet.
template <>
inline bf16 from_float<bf16>(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
// 2^(code-127); code 255 is NaN.
inline float e8m0_to_float(uint8_t code) {
  uint32_t u = code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
// e4m3: bias 7, no infinity, 0x7f and 0xff are NaN. Exact in float32; free of branches and of float32
// subnormals, so that loops over it vectorise and run at full speed.
inline float e4m3_to_float(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f;
  uint32_t u;
  std::memcpy(&u, &small, 4);
  const uint32_t is_small = 0u - static_cast<uint32_t>(magnitude < 8),
                 is_nan = 0u - static_cast<uint32_t>(magnitude == 0x7f);
  u = (u & is_small) | (normal & ~is_small) | (0x7fc00000u & is_nan) | (code & 0x80u) << 24;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// Row table columns (see RowColumn in compiler/ops/rows.py).
enum RowColumn { SLOT, POSITION, BASE, FIRST_ROW, COUNT, TOKEN, FLOOR, FLAGS, NUM_ROW_COLUMNS };
enum RowFlag { START = 1, IMAGE = 2, PAD = 4, FLOOR_HERE = 8, REPLAY = 16, HIT = 32 };

}  // namespace dsv41c::cpu
