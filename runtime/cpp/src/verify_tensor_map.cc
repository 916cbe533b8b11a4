// Rules of tensor maps: what cuTensorMapEncodeTiled takes, and bytes inside the scratch.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

constexpr int32_t INTERLEAVE_NONE = 0, INTERLEAVE_32B = 2, SWIZZLE_NONE = 0, SWIZZLE_32B = 1;
static_assert(plan_format::INTERLEAVES[INTERLEAVE_NONE] == "none" && plan_format::INTERLEAVES[INTERLEAVE_32B] == "32b");
static_assert(plan_format::SWIZZLES[SWIZZLE_NONE] == "none" && plan_format::SWIZZLES[SWIZZLE_32B] == "32b");
static_assert(plan_format::OOB_FILLS[1] == "nan");
constexpr int64_t SWIZZLE_BYTES[] = {0, 32, 64, 128};

bool all_within(const std::vector<int64_t>& values, int64_t least, int64_t most, int64_t unit = 1) {
  return std::ranges::all_of(values, [=](int64_t v) { return least <= v && v <= most && v % unit == 0; });
}

std::vector<int64_t> evaluate_all(const std::vector<Expr>& expressions, const Symbols& symbols, const Where& where) {
  std::vector<int64_t> values;
  for (const Expr& each : expressions) values.push_back(evaluate_extent(each, symbols, where));
  return values;
}

void check_form(const TensorMapRecipe& map, const Where& where) {
  const auto rank = static_cast<int64_t>(map.sizes.size());
  const int64_t least = map.interleave == INTERLEAVE_NONE ? 1 : 3, most = plan_format::MAX_MAP_DIMS;
  if (rank < least || rank > most)
    broken("bad tensor map", where, std::to_string(rank) + " dimensions",
           std::to_string(least) + " to " + std::to_string(most) + " dimensions");
  const int64_t lengths[] = {static_cast<int64_t>(map.strides.size()) + 1, static_cast<int64_t>(map.box.size()),
                             static_cast<int64_t>(map.element_strides.size())};
  if (std::ranges::any_of(lengths, [=](int64_t length) { return length != rank; }))
    broken("bad tensor map", where, "lists for " + numbers(lengths) + " dimensions",
           std::to_string(rank) + " dimensions");
  if (map.interleave == INTERLEAVE_32B && map.swizzle != SWIZZLE_32B)
    broken("bad tensor map swizzle", where, std::string(plan_format::SWIZZLES[map.swizzle]), "32b with interleave 32b");
  const bool is_float = map.dtype == DSV41C_FLOAT32 || map.dtype == DSV41C_BFLOAT16 || map.dtype == DSV41C_FLOAT64;
  if (map.oob_fill == 1 && !is_float)
    broken("bad tensor map fill", where, "nan with " + std::string(dtype_name(map.dtype)),
           "nan with float32 bfloat16 float64");
}

void check_box(const TensorMapRecipe& map, const Where& where) {
  if (!all_within(map.box, 1, plan_format::MAX_BOX))
    broken("bad tensor map box", where, numbers(map.box), "1 to " + std::to_string(plan_format::MAX_BOX) + " elements");
  if (!all_within(map.element_strides, 1, plan_format::MAX_ELEMENT_STRIDE))
    broken("bad tensor map element stride", where, numbers(map.element_strides),
           "1 to " + std::to_string(plan_format::MAX_ELEMENT_STRIDE));
  if (map.interleave != INTERLEAVE_NONE) return;
  const int64_t inner = map.box[0] * item_bytes(map.dtype);
  const std::string found = std::to_string(inner) + " inner bytes";
  if (inner % 16 != 0) broken("bad tensor map box", where, found, "a multiple of 16");
  if (map.swizzle != SWIZZLE_NONE && inner > SWIZZLE_BYTES[map.swizzle])
    broken("bad tensor map box", where, found,
           "at most " + std::to_string(SWIZZLE_BYTES[map.swizzle]) + " with swizzle " +
               std::string(plan_format::SWIZZLES[map.swizzle]));
}

}  // namespace

int64_t map_alignment(const TensorMapRecipe& map) { return map.interleave == INTERLEAVE_32B ? 32 : 16; }

int64_t map_span(const TensorMapRecipe& map, const Symbols& symbols, const Where& where) {
  const std::vector<int64_t> sizes = evaluate_all(map.sizes, symbols, where);
  const std::vector<int64_t> strides = evaluate_all(map.strides, symbols, where);
  const int64_t unit = map_alignment(map);
  if (!all_within(sizes, 1, plan_format::MAX_MAP_SIZE))
    broken("bad tensor map size", where, numbers(sizes),
           "1 to " + std::to_string(plan_format::MAX_MAP_SIZE) + " elements");
  if (!all_within(strides, unit, plan_format::MAX_MAP_STRIDE, unit))
    broken("bad tensor map stride", where, numbers(strides),
           "multiples of " + std::to_string(unit) + " from " + std::to_string(unit) + " to " +
               std::to_string(plan_format::MAX_MAP_STRIDE) + " bytes");
  __extension__ using Wide = __int128;  // four dimensions of 2^32 elements 2^40 bytes apart
  Wide span = Wide{sizes[0]} * item_bytes(map.dtype);
  for (size_t i = 0; i < strides.size(); ++i) span += Wide{sizes[i + 1] - 1} * strides[i];
  if (span > plan_format::MAX_BYTES)
    broken("tensor is too large", where, numbers(sizes),
           "at most " + std::to_string(plan_format::MAX_BYTES) + " bytes");
  return static_cast<int64_t>(span);
}

void check_map_address(const TensorMapRecipe& map, int64_t begin, const Where& where) {
  if (begin % map_alignment(map) != 0)
    broken("tensor map is not aligned", where, "byte " + std::to_string(begin),
           "a multiple of " + std::to_string(map_alignment(map)));
}

void check_tensor_map(const Param& param, const Symbols& symbols, int64_t scratch_bytes, const Where& where) {
  check_form(param.map, where);
  check_box(param.map, where);
  const int64_t span = map_span(param.map, symbols, where);
  if (!param.map.is_scratch) {
    if (param.tensor < 0) broken("argument index out of range", where, std::to_string(param.tensor), "at least 0");
    return;
  }
  const int64_t begin = evaluate_extent(param.value, symbols, where);
  if (begin < 0 || begin > scratch_bytes - span)
    broken("parameter outside the scratch", where, std::to_string(begin) + " and " + std::to_string(span) + " bytes",
           "0 to " + std::to_string(scratch_bytes));
  check_map_address(param.map, begin, where);
}

}  // namespace dsv41c::verifier
