// The families of verifier rules; each is the counterpart of runtime/plan/verify_<family>.py.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "verify_geometry.h"

namespace dsv41c::verifier {

// A value's root (itself unless it is a view), the root's storage and its bytes at each of the method's points.
struct Placed {
  int64_t root = 0;
  const Storage* storage = nullptr;
  std::vector<Range> ranges;
  const Range& hi() const { return ranges.back(); }
};

// What launches of a kernel must respect. A body without locals says nothing about its arguments.
struct KernelFacts {
  bool has_locals = false;
  std::map<int64_t, int64_t> scratch_bytes;                   // rows -> bytes
  std::map<int64_t, int32_t> arguments;                       // index -> dtype
  std::map<int64_t, int64_t> alignments;                      // index -> bytes that its begin is a multiple of
  std::map<std::pair<int64_t, int64_t>, int64_t> span_bytes;  // (rows, index) -> bytes
  std::set<int64_t> written;
  std::set<int64_t> read_first;
};

// The local that owns the bytes, and the bytes: of the scratch, of an argument or of a constant.
struct PlacedLocal {
  int64_t root = 0;
  Range bytes;
};

// A tensor that a kernel is given: its dtype, and its bytes at each point that is checked. Those of a local that is an
// argument of a sequence count from the argument's begin.
struct Operand {
  int32_t dtype = 0;
  std::vector<Range> ranges;
};

// Bytes that belong to `place` from moment first to moment last, both included.
struct Lifetime {
  std::string (*place)(const void* owner, int64_t root);
  const void* owner;
  int64_t root;
  Range bytes;
  int64_t first;
  int64_t last;
};

// Bridges that a method writes, and the place of the first read of those that it needs from before.
struct BridgeUse {
  std::set<int64_t> written;
  std::map<int64_t, std::string> needed;
};

// Values of the symbol at which everything is checked: the least and the most rows of a run, and the buckets.
std::vector<int64_t> points_of(const Method& method, const Symbol& symbol);
void check_tables(const Plan& plan);
void check_bridges(const Plan& plan);
std::vector<KernelFacts> check_kernels(const Plan& plan);
// At one number of rows.
void check_cuda_body(const Kernel& kernel, const std::string& place, const Symbols& symbols, int64_t scratch_bytes);
// One local behind those that are `placed`, in a launch with `scratch` bytes of it.
PlacedLocal place_local(const Local& local, const std::vector<PlacedLocal>& placed, const Symbols& symbols,
                        int64_t scratch, const Where& where);
// Launches must bring this argument, with this dtype and as many bytes.
void note_argument(const Local& local, const PlacedLocal& placed, int64_t rows, KernelFacts& facts);
// At one number of rows. `known`: the facts of all kernels before the sequence.
void check_sequence(const Plan& plan, const std::vector<KernelFacts>& known, KernelFacts& facts, int64_t rows);
// A body with locals finds the tensors that it uses, large enough, aligned, and writable where it writes. `points` are
// values of `symbol`; `operand(value)` is the tensor behind an argument.
void check_arguments(const std::vector<Argument>& tensors, const KernelFacts& facts, const std::vector<int64_t>& points,
                     const std::string& symbol, const std::function<Operand(int64_t)>& operand, const Where& where);
// The tensors that a CUDA body's nodes name are there, large enough and writable, and every output is named.
void check_cuda_arguments(const Kernel& kernel, const std::vector<Argument>& tensors,
                          const std::vector<int64_t>& points, const std::string& symbol,
                          const std::function<Operand(int64_t)>& operand, const Where& where);
// At one number of rows; the address is checked where it is known.
void check_tensor_map(const Param& param, const Symbols& symbols, int64_t scratch_bytes, const Where& where);
void check_map_address(const TensorMapRecipe& map, int64_t begin, const Where& where);
// Bytes that the address and every stride are a multiple of.
int64_t map_alignment(const TensorMapRecipe& map);
// Bytes from the first element to the end of the last one.
int64_t map_span(const TensorMapRecipe& map, const Symbols& symbols, const Where& where);
std::vector<Placed> place_values(const Plan& plan, const Method& method, const Symbol& symbol);
void check_ports(const Method& method);
void check_launches(const Plan& plan, const Method& method, const Symbol& symbol, const std::vector<Placed>& placed,
                    const std::vector<KernelFacts>& kernels);
void check_lifetimes(const Method& method, const std::vector<Placed>& placed);
void check_disjoint_lives(std::vector<Lifetime> lives);
BridgeUse check_dataflow(const Method& method, const std::vector<Placed>& placed);
void check_bridge_use(const Plan& plan, const Method& method, const std::vector<Placed>& placed);
void check_flows(const Plan& plan, const std::vector<BridgeUse>& uses);
void check_ladders(const Plan& plan, const std::vector<BridgeUse>& uses);
void check_io(const Plan& plan, const std::vector<std::vector<Placed>>& placed);

template <class Range, class Project>
void check_unique(const Range& items, Project name_of, const std::string& what) {
  std::set<std::string> seen;
  for (const auto& item : items)
    if (!seen.insert(name_of(item)).second)
      broken("duplicate name", what + " " + name_of(item), "two of " + name_of(item), "one of each name");
}

// Calls f(number, launch) for all launches of the method in the order they run, numbered through its steps.
template <class F>
void for_each_launch(const Method& method, F f) {
  int64_t index = 0;
  for (const Step& step : method.steps)
    for (const Launch& launch : step.launches) f(index++, launch);
}

inline bool writes(const Argument& argument) {
  return argument.kind == ArgumentKind::out || argument.kind == ArgumentKind::inout;
}

}  // namespace dsv41c::verifier
