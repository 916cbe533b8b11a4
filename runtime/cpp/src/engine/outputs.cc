#include "engine/outputs.h"

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

std::string form(const dsv41c_tensor& tensor) {
  std::string text(dtype_name(tensor.dtype));
  for (int d = 0; d < tensor.ndim; ++d) text += (d == 0 ? " [" : ", ") + std::to_string(tensor.sizes[d]);
  return text + "]";
}

void check(const char* name, const dsv41c_tensor& tensor, bool holds, const std::string& needed) {
  if (holds) return;
  throw Error({.code = plan_format::E0703,
               .subject = std::string("output ") + name,
               .found = form(tensor),
               .needed = needed,
               .action = "compile the artifact again"});
}

}  // namespace

StepOutputs read_outputs(Executor& executor, int64_t rows, int64_t vocabulary) {
  const StepOutputs outputs{executor.output("tokens"), executor.output("logits")};
  const dsv41c_tensor &tokens = outputs.token_tensor, &logits = outputs.logit_tensor;
  check("tokens", tokens, tokens.dtype == DSV41C_INT32 && tokens.ndim == 1 && tokens.sizes[0] == rows,
        "int32 [" + std::to_string(rows) + "]");
  check("logits", logits,
        logits.dtype == DSV41C_FLOAT32 && logits.ndim == 2 && logits.sizes[0] == rows &&
            logits.sizes[1] == vocabulary && logits.strides[1] == 1,
        "float32 [" + std::to_string(rows) + ", " + std::to_string(vocabulary) + "]");
  return outputs;
}

}  // namespace dsv41c
