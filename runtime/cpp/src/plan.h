// The plan as structs, field for field as in runtime/plan/schema.py; parse_plan is the only way to make one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsv41c/plan_generated.h"
#include "expr.h"

namespace dsv41c {

using plan_format::ArgumentKind;  // in, inout, out, none
using plan_format::BodyKind;      // native, composite, cuda, sequence
using plan_format::LifeKind;      // flow, steps
using plan_format::LocalKind;     // arg, temp, view, constant
using plan_format::NodeKind;      // kernel, copy, memset
using plan_format::Pads;          // rows, valid, none
using plan_format::ParamKind;     // tensor, scratch, int32, int64, float_, tensor_map
using plan_format::StepKind;      // segment, break_
using plan_format::StorageKind;   // arena, weight, state, bridge, io, view
using plan_format::TagKind;       // t, m, ts, i, is, f, b, dtype, s, none

struct Provenance {
  std::string model_digest;
  std::string options;  // JSON text of the object
  std::string producer;
};

struct Symbol {
  std::string name;
  int64_t lo = 0;
  int64_t hi = 0;
};

struct Memory {
  int64_t state_bytes = 0;
  int64_t bridge_bytes = 0;
  int64_t io_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t total_bytes = 0;
};

struct Weight {
  std::string name;
  int32_t dtype = 0;  // dsv41c_dtype
  std::vector<int64_t> sizes;
};

struct State {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> sizes;
  int64_t offset = 0;
  int64_t fill = 0;
};

struct Bridge {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> sizes;
  int64_t offset = 0;
  LifeKind life = LifeKind::flow;
  std::string method;           // steps
  int64_t first = 0, last = 0;  // steps: of the method, both included

  bool is_of_flow() const { return life == LifeKind::flow; }
};

struct Local {
  LocalKind kind = LocalKind::arg;
  int32_t dtype = 0;
  std::vector<Expr> sizes;  // empty for a constant
  std::vector<Expr> strides;
  int64_t index = 0;  // arg: index into the launch's tensors; view: the local that it looks into
  Expr offset;        // temp: bytes into the scratch; view: elements of its dtype
};

struct Tag {
  TagKind kind = TagKind::none;
  std::vector<int64_t> locals;  // t and m: one, ts: any number
  std::vector<Expr> values;     // i: one, is: any number
};

struct Call {
  std::string op;
  std::string overload;
  std::vector<Tag> args;
};

// A CUtensorMap's recipe; dimensions from the innermost one on.
struct TensorMapRecipe {
  bool is_scratch = false;  // else a tensor
  int32_t dtype = 0;
  std::vector<Expr> sizes;    // elements
  std::vector<Expr> strides;  // bytes, from the second dimension on
  std::vector<int64_t> box;   // elements
  std::vector<int64_t> element_strides;
  int32_t interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;  // the driver's numbers
};

struct Param {
  ParamKind kind = ParamKind::tensor;
  int64_t tensor = 0;   // tensor, tensor_map of one: index into the launch's tensors
  Expr value;           // scratch and tensor_map of it (byte offset), int32, int64
  float number = 0;     // float_
  TensorMapRecipe map;  // tensor_map

  bool is_tensor() const { return kind == ParamKind::tensor || (kind == ParamKind::tensor_map && !map.is_scratch); }
};

struct CudaLaunch {
  NodeKind kind = NodeKind::kernel;
  Param target, source;  // copy and memset (target only): tensor or scratch
  Expr bytes;            // copy, memset
  int64_t value = 0;     // memset: of each byte
  std::string cubin;     // kernel, from here on: SHA-256 of the file in kernels/
  std::string symbol;
  std::vector<Param> params;  // in the function's own order
  std::vector<Expr> grid;     // x, y, z
  std::vector<int64_t> block;
  int64_t shared_bytes = 0;  // dynamic
};

struct Argument {
  ArgumentKind kind = ArgumentKind::none;
  int64_t value = -1;  // a value of the method, or a local of the sequence; -1 for none
};

// One kernel of a sequence.
struct Part {
  int64_t kernel = 0;  // index in the plan, before the sequence's own
  std::vector<Argument> tensors;
  Expr scratch;  // byte offset into the launch's scratch
};

struct Kernel {
  std::string op;
  BodyKind kind = BodyKind::native;
  std::string body;                  // JSON text of the body, as provider.prepare takes it
  std::string entry;                 // native
  std::vector<Local> locals;         // composite, sequence
  std::vector<Call> calls;           // composite
  std::vector<CudaLaunch> launches;  // cuda
  std::vector<Part> parts;           // sequence
  Expr scratch_bytes;                // over the symbol "rows"
};

struct Port {
  std::string name;
  int64_t value = 0;
  std::vector<int64_t> pad;  // inputs: one pad row; outputs: empty
};

struct Storage {
  StorageKind kind = StorageKind::arena;
  int64_t index = 0;  // weight, state, bridge: table index; arena, io: byte offset; view: the value it looks into
  Expr offset;        // view: elements of its own dtype
};

struct Value {
  std::string name;
  int32_t dtype = 0;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Storage storage;
  Pads pads = Pads::none;
};

struct Launch {
  std::string name;
  int64_t kernel = 0;
  std::vector<Argument> tensors;
  std::optional<int64_t> scratch;  // value index
};

struct Step {
  StepKind kind = StepKind::segment;
  std::string op;      // break only
  std::string reason;  // break only
  std::vector<Launch> launches;
};

// How the buckets were chosen. The costs are the model behind the choice; nothing here depends on them.
struct Ladder {
  std::string policy;
  std::string above;  // with more rows than the largest bucket: "eager" or "split"
  int64_t replay_ns = 0;
  int64_t row_ns = 0;
  int64_t eager_ns = 0;
  int64_t block_rows = 0;  // most rows of one run, of a method that is run in blocks of rows; 0: it never is

  bool splits() const { return above == "split"; }
};

struct Method {
  std::string name;
  std::string axis;  // rows, kept_rows or output_rows
  std::string symbol;
  std::vector<int64_t> buckets;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<Value> values;
  std::vector<Step> steps;
  int64_t arena_bytes = 0;
  Ladder ladder;

  // Most rows of one run when a step has at most `bound`.
  int64_t run_rows(int64_t bound) const { return ladder.block_rows > 0 ? ladder.block_rows : bound; }
};

struct Flow {
  std::string name;
  std::vector<std::string> methods;
  std::string requires_;  // "all_rows_output" or "nothing"
};

struct Check {
  std::vector<int64_t> prompt;
  std::vector<int64_t> tokens;
};

struct Plan {
  int64_t version = 0;
  std::vector<std::string> required_features;
  std::string target;
  Provenance provenance;
  std::vector<Symbol> symbols;
  Memory memory;
  std::vector<Weight> weights;
  std::vector<State> state;
  std::vector<Bridge> bridges;
  std::vector<Kernel> kernels;
  std::vector<Method> methods;
  std::vector<Flow> flows;
  std::vector<Check> checks;
};

// E0501 names the path of what is wrong (unknown and missing keys too), E0503 an unknown required feature.
// Parsing says that the JSON has the right form; verify_plan (verify.h) says that it is safe to run.
Plan parse_plan(std::string_view text);

const Symbol& symbol_of(const Plan& plan, const Method& method);  // E0502 when the plan lacks it
int64_t item_bytes(int32_t dtype);
std::string_view dtype_name(int32_t dtype);
int32_t parse_dtype(std::string_view name);  // -1 when unknown
std::string_view argument_name(ArgumentKind kind);

}  // namespace dsv41c
