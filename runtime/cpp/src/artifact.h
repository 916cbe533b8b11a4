// An artifact directory: manifest, plan and mapped weights, checked before anything runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mapped_weights.h"
#include "plan.h"
#include "safetensors.h"

namespace dsv41c {

class Artifact {
 public:
  // Checks format version, plan-only, features, file sizes and digests (of every file when `verify_full`, else of
  // the plan and the weight index), verifies the plan, and maps the weights. An artifact that leaves its weights in a
  // checkpoint needs that directory as `weights`; another must not be given one (E0901). `admit` sees the verified plan
  // before any weight is mapped and may throw.
  Artifact(const std::string& path, bool verify_full, const std::string& weights,
           const std::function<void(const Plan&)>& admit);

  const std::string& path() const { return path_; }
  const Plan& plan() const { return plan_; }
  const std::vector<const StoredTensor*>& weights() const { return weights_; }  // by plan weight index
  int64_t weight_bytes() const;
  int64_t gathered_weight_bytes() const { return mapped_ ? mapped_->gathered_bytes() : 0; }

 private:
  void map_weights();

  std::string path_;
  Plan plan_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unique_ptr<MappedWeights> mapped_;
  std::vector<const StoredTensor*> weights_;
};

}  // namespace dsv41c
