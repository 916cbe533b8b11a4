// Rules of a method's values; placing them gives each one's root and byte range at every point.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

void check_form(const Value& value, const std::string& symbol, const Where& where) {
  if (value.sizes.size() > static_cast<size_t>(plan_format::MAX_DIMS))
    broken("too many dimensions", where, std::to_string(value.sizes.size()),
           "at most " + std::to_string(plan_format::MAX_DIMS));
  const bool has_rows = !value.sizes.empty() && reads_symbol(value.sizes[0], symbol);
  if (has_rows && value.pads == Pads::none)
    broken("pad rule missing", where, "pads \"none\"", "\"rows\" or \"valid\": its first size grows with " + symbol);
}

// The value has the table's dtype and sizes; a bridge may be used up to its capacity in rows.
template <class Entry>
void check_same(const Value& value, const Shape& shape, const Entry& entry, bool at_most, const Where& where) {
  const auto& sizes = shape.sizes;
  const bool same_rows = sizes.size() == entry.sizes.size() && !sizes.empty() &&
                         std::equal(sizes.begin() + 1, sizes.end(), entry.sizes.begin() + 1);
  const bool fits = at_most && same_rows && sizes[0] <= entry.sizes[0];
  if (value.dtype != entry.dtype || !(fits || sizes == entry.sizes))
    broken("value differs from its table entry", where, std::string(dtype_name(value.dtype)) + " " + numbers(sizes),
           std::string(dtype_name(entry.dtype)) + " " + numbers(entry.sizes) + " of " + entry.name);
}

Range root_range(const Plan& plan, const Method& method, const Value& value, const Shape& shape, const Where& where) {
  const int64_t index = value.storage.index, span = shape.span_bytes;
  const auto offset_range = [&](Region region, int64_t capacity) {
    check_offset(index, plan_format::ALIGNMENT, where);
    const Range range{region, 0, index, index + span};
    check_range(range, capacity, where);
    return range;
  };
  switch (value.storage.kind) {
    case StorageKind::arena:
      return offset_range(Region::arena, method.arena_bytes);
    case StorageKind::io:
      return offset_range(Region::io, plan.memory.io_bytes);
    case StorageKind::weight:
      check_index(index, plan.weights.size(), "weight", where);
      check_same(value, shape, plan.weights[index], false, where);
      return {Region::weight, index, 0, span};
    case StorageKind::state: {
      check_index(index, plan.state.size(), "state", where);
      check_same(value, shape, plan.state[index], false, where);
      const int64_t begin = plan.state[index].offset;
      return {Region::state, 0, begin, begin + span};
    }
    case StorageKind::bridge: {
      check_index(index, plan.bridges.size(), "bridge", where);
      check_same(value, shape, plan.bridges[index], true, where);
      const int64_t begin = plan.bridges[index].offset;
      return {Region::bridge, 0, begin, begin + span};
    }
    case StorageKind::view:
      break;  // range_at has handled it
  }
  return {};
}

Range range_at(const Plan& plan, const Method& method, const Value& value, const std::vector<Placed>& placed,
               const Symbols& symbols, size_t point, const Where& where) {
  const Shape shape = shape_at(value.sizes, value.strides, value.dtype, symbols, where);
  if (value.storage.kind != StorageKind::view) {
    if (!shape.is_contiguous())
      broken("strides are not contiguous", where, numbers(shape.strides) + " for " + numbers(shape.sizes),
             "contiguous strides outside views");
    return root_range(plan, method, value, shape, where);
  }
  const Range& base = placed[value.storage.index].ranges[point];
  const int64_t begin =
      add_offset(base.begin, evaluate_extent(value.storage.offset, symbols, where), value.dtype, where);
  const Range view{base.region, base.number, begin, begin + shape.span_bytes};
  if (!base.contains(view)) broken("view outside its base", where, view.text(), base.text());
  return view;
}

}  // namespace

std::vector<int64_t> points_of(const Method& method, const Symbol& symbol) {
  std::set<int64_t> points(method.buckets.begin(), method.buckets.end());
  points.insert({symbol.lo, method.run_rows(symbol.hi)});
  return {points.begin(), points.end()};
}

std::vector<Placed> place_values(const Plan& plan, const Method& method, const Symbol& symbol) {
  if (method.arena_bytes < 0 || method.arena_bytes > plan_format::MAX_BYTES)
    broken("bad memory size", "method " + method.name, std::to_string(method.arena_bytes),
           "0 to " + std::to_string(plan_format::MAX_BYTES));
  const std::vector<int64_t> points = points_of(method, symbol);
  std::vector<Placed> placed;
  for (size_t i = 0; i < method.values.size(); ++i) {
    const Value& value = method.values[i];
    const auto where = [&] { return value_place(method, static_cast<int64_t>(i)); };
    check_form(value, symbol.name, where);
    const bool is_view = value.storage.kind == StorageKind::view;
    if (is_view) check_index(value.storage.index, i, "view base", where);
    Placed entry{static_cast<int64_t>(i), &value.storage, {}};
    for (size_t point = 0; point < points.size(); ++point)
      entry.ranges.push_back(range_at(plan, method, value, placed, {{symbol.name, points[point]}}, point, where));
    if (is_view) {
      entry.root = placed[value.storage.index].root;
      entry.storage = placed[value.storage.index].storage;
    }
    placed.push_back(std::move(entry));
  }
  return placed;
}

}  // namespace dsv41c::verifier
