// An ATen composite: the call list of a plan kernel, checked against torch's schemas, and its bound form.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dsv41c/provider.h"
#include "expr.h"

namespace dsv41c::aten {

enum class LocalKind { arg, temp, view, constant };

struct Local {
  LocalKind kind = LocalKind::arg;
  at::ScalarType dtype = at::kFloat;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  size_t index = 0;          // arg: tensor of the launch; view: the local that it looks into
  Expr offset;               // temp: bytes into the scratch; view: elements of its dtype
  at::Tensor constant;       // shared by all bindings, never written
  at::Tensor cuda_constant;  // the same on the CUDA device that last bound it
};

// What one schema argument receives: tensors by local, values by expression, or a value that never changes.
struct Operand {
  enum class Kind { tensor, tensors, optional_tensors, integer, integers, scalar, fixed };
  Kind kind = Kind::fixed;
  std::vector<size_t> locals;
  std::vector<Expr> values;
  c10::IValue fixed;
};

struct Call {
  std::string name;  // "aten::mul.out", for messages
  c10::OperatorHandle op;
  std::vector<Operand> operands;
  std::vector<size_t> written;  // locals that the call writes
};

struct Composite {
  std::vector<Local> locals;
  std::vector<Call> calls;
};

// Parses and checks a composite body; throws std::invalid_argument with the call's name.
Composite parse_composite(const nlohmann::json& body);
// Checks the arguments of one call against the op's schema.
Call parse_call(const nlohmann::json& node, const std::vector<Local>& locals);
at::ScalarType scalar_type(const std::string& name);
at::ScalarType scalar_type(int32_t code);

// The composite at fixed addresses and sizes. Launching copies frozen argument stacks, because a boxed call
// consumes its stack.
class BoundComposite {
 public:
  // Constants move to the binding's device on its first binding.
  BoundComposite(Composite& composite, const dsv41c_binding& binding);
  void launch();

 private:
  struct Frozen {
    const Call* call;
    std::vector<c10::IValue> arguments;
  };
  struct Written {
    at::Tensor tensor;
    void* data;
    std::vector<int64_t> sizes;
    const Call* call;
  };
  void freeze(Composite& composite, const dsv41c_binding& binding);
  void run_calls();
  void verify_written() const;

  std::optional<c10::Stream> stream_;  // CUDA
  std::vector<Frozen> calls_;
  std::vector<Written> written_;
  std::vector<c10::IValue> stack_;
  bool verified_ = false;
};

}  // namespace dsv41c::aten
