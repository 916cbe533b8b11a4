// The outputs of a step, checked.
#pragma once

#include "engine/sampler.h"
#include "executor.h"

namespace dsv41c {

struct StepOutputs {
  dsv41c_tensor token_tensor, logit_tensor;

  int32_t token(int64_t row) const {
    return static_cast<const int32_t*>(token_tensor.data)[row * token_tensor.strides[0]];
  }
  Logits logits(int64_t row) const {
    return {static_cast<const float*>(logit_tensor.data) + row * logit_tensor.strides[0],
            static_cast<size_t>(logit_tensor.sizes[1])};
  }
};

// tokens int32 [rows] and logits float32 [rows, vocabulary] of the last step; E0703 when the plan gives others.
StepOutputs read_outputs(Executor& executor, int64_t rows, int64_t vocabulary);

}  // namespace dsv41c
