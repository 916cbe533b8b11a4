// An artifact directory: manifest, plan and mapped weights, checked before anything runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan.h"
#include "safetensors.h"

namespace dsv41c {

class Artifact {
 public:
  // Checks format version, plan-only, features, file sizes and digests (of every file when `verify_full`, else of
  // the plan and the weight index), verifies the plan, and maps the weights.
  Artifact(const std::string& path, bool verify_full);

  const std::string& path() const { return path_; }
  const Plan& plan() const { return plan_; }
  const std::vector<const StoredTensor*>& weights() const { return weights_; }  // by plan weight index
  int64_t weight_bytes() const;

 private:
  void map_weights();

  std::string path_;
  Plan plan_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<const StoredTensor*> weights_;
};

}  // namespace dsv41c
