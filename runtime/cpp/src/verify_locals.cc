// Rules of a body's locals: each lies inside its base, its argument or the launch's scratch.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

PlacedLocal place_view(const Local& local, const std::vector<PlacedLocal>& placed, int64_t offset, int64_t span,
                       const Where& where) {
  check_index(local.index, placed.size(), "view base", where);
  const PlacedLocal& base = placed[local.index];
  const int64_t begin = add_offset(base.bytes.begin, offset, local.dtype, where);
  const Range view{base.bytes.region, base.bytes.number, begin, begin + span};
  if (!base.bytes.contains(view)) broken("view outside its base", where, view.text(), base.bytes.text());
  return {base.root, view};
}

}  // namespace

PlacedLocal place_local(const Local& local, const std::vector<PlacedLocal>& placed, const Symbols& symbols,
                        int64_t scratch, const Where& where) {
  const auto index = static_cast<int64_t>(placed.size());
  if (local.kind == LocalKind::constant) return {index, {Region::constant, 0, 0, item_bytes(local.dtype)}};
  const int64_t span = shape_at(local.sizes, local.strides, local.dtype, symbols, where).span_bytes;
  if (local.kind == LocalKind::arg) {
    if (local.index < 0) broken("argument index out of range", where, std::to_string(local.index), "at least 0");
    return {index, {Region::argument, local.index, 0, span}};
  }
  const int64_t offset = evaluate_extent(local.offset, symbols, where);
  if (local.kind == LocalKind::view) return place_view(local, placed, offset, span, where);
  check_offset(offset, item_bytes(local.dtype), where);
  const Range temp{Region::scratch, 0, offset, offset + span};
  if (temp.end > scratch)
    broken("temporary outside the scratch", where, temp.text(), "an end of at most " + std::to_string(scratch));
  return {index, temp};
}

void note_argument(const Local& local, const PlacedLocal& placed, int64_t rows, KernelFacts& facts) {
  if (local.kind != LocalKind::arg) return;
  facts.arguments.try_emplace(local.index, local.dtype);
  int64_t& span = facts.span_bytes[{rows, local.index}];
  span = std::max(span, placed.bytes.end);
}

}  // namespace dsv41c::verifier
