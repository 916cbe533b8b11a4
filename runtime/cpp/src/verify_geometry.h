// Byte ranges of tensors at given symbol values, and the error that every verifier rule throws.
#pragma once

#include <span>
#include <string>

#include "plan.h"

namespace dsv41c::verifier {

// A place in the plan, rendered only for an error. Refers to a callable that outlives the call.
class Where {
 public:
  template <class F>
  Where(const F& f) : object_(&f), call_([](const void* o) -> std::string { return (*static_cast<const F*>(o))(); }) {}
  std::string text() const { return call_(object_); }

 private:
  const void* object_;
  std::string (*call_)(const void*);
};

[[noreturn]] void broken(std::string subject, const std::string& where, std::string found, std::string needed);
[[noreturn]] inline void broken(std::string subject, const Where& where, std::string found, std::string needed) {
  broken(std::move(subject), where.text(), std::move(found), std::move(needed));
}

enum class Region { arena, io, state, bridge, weight, argument, scratch, constant };

// Bytes [begin, end) of one region; `number` tells weights and arguments apart.
struct Range {
  Region region = Region::arena;
  int64_t number = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool overlaps(const Range& other) const {
    return region == other.region && number == other.number && begin < other.end && other.begin < end;
  }
  bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
  std::string text() const;
};

struct Shape {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t span_bytes = 0;  // from the first element to the end of the last one

  bool is_contiguous() const;
};

int64_t evaluate_at(const Expr& expr, const Symbols& symbols, const Where& where);
// Of a size, stride, offset or grid: never falls as the symbol grows, so that what holds at a point holds below it.
int64_t evaluate_extent(const Expr& expr, const Symbols& symbols, const Where& where);
Shape shape_at(const std::vector<Expr>& sizes, const std::vector<Expr>& strides, int32_t dtype, const Symbols& symbols,
               const Where& where);
void check_index(int64_t index, size_t count, const char* what, const Where& where);
void check_offset(int64_t begin, int64_t alignment, const Where& where);
// The byte address of an element offset from `base`.
int64_t add_offset(int64_t base, int64_t elements, int32_t dtype, const Where& where);
// Bytes of a contiguous tensor of a table.
int64_t table_bytes(std::span<const int64_t> sizes, int32_t dtype, const Where& where);
// A root's range: aligned and inside its region.
void check_range(const Range& range, int64_t capacity, const Where& where);
bool reads_symbol(const Expr& expr, std::string_view symbol);

std::string launch_place(const Method& method, int64_t index, const Launch& launch);
std::string value_place(const Method& method, int64_t index);
std::string numbers(std::span<const int64_t> values);
std::string join_names(std::span<const std::string> names);

}  // namespace dsv41c::verifier
