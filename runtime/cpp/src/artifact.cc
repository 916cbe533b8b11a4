// Opens an artifact: manifest, plan, weights.
#include "artifact.h"

#include <map>
#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "manifest.h"
#include "verify.h"

namespace dsv41c {
namespace {

using Json = nlohmann::json;
constexpr const char* INDEX = "model.safetensors.index.json";

[[noreturn]] void refuse(std::string_view code, const std::string& subject, const std::string& found,
                         const std::string& needed) {
  throw Error(
      {.code = code, .subject = subject, .found = found, .needed = needed, .action = "compile the artifact again"});
}

std::string joined(const std::vector<int64_t>& sizes) {
  std::string text;
  for (int64_t size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
  return "[" + text + "]";
}

// The index decides which file holds a tensor.
std::map<std::string, std::string> read_index(const std::string& directory) {
  const MappedFile file(directory + "/" + INDEX);
  try {
    return Json::parse(file.text()).at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const Json::exception& e) {
    refuse(plan_format::E0703, "bad index " + file.path(), e.what(), "a JSON object with weight_map");
  }
}

void check_weight(const Weight& weight, const StoredTensor* stored) {
  const std::string subject = "weight " + weight.name;
  if (!stored) refuse(plan_format::E0601, subject, "no such tensor in the artifact's safetensors files", "the tensor");
  const int32_t dtype = dtype_of_stored(stored->dtype);
  if (dtype != weight.dtype || stored->sizes != weight.sizes)
    refuse(plan_format::E0703, subject, stored->dtype + joined(stored->sizes),
           std::string(dtype_name(weight.dtype)) + joined(weight.sizes));
  int64_t bytes = item_bytes(dtype);
  for (int64_t size : weight.sizes) bytes *= size;
  if (stored->bytes != bytes)
    refuse(plan_format::E0703, subject, std::to_string(stored->bytes) + " bytes", std::to_string(bytes) + " bytes");
  const auto misplaced = reinterpret_cast<uintptr_t>(stored->data) % static_cast<uintptr_t>(item_bytes(dtype));
  if (misplaced != 0)
    refuse(plan_format::E0703, subject, "data " + std::to_string(misplaced) + " bytes past its alignment",
           "data aligned to its items");
}

void check_directory(const std::string& path, bool is_mapped, const std::string& weights) {
  if (is_mapped != weights.empty()) return;
  throw Error({.code = plan_format::E0901,
               .subject = "weights of " + path,
               .found = is_mapped ? "no checkpoint directory" : "the checkpoint directory " + weights,
               .needed = is_mapped ? "the checkpoint in which this artifact leaves its weights"
                                   : "none: this artifact holds its weights",
               .action = is_mapped ? "run it with --weights DIR" : "leave out --weights"});
}

}  // namespace

Artifact::Artifact(const std::string& path, bool verify_full, const std::string& weights,
                   const std::function<void(const Plan&)>& admit)
    : path_(path) {
  const Manifest manifest = read_manifest(path);
  check_files(manifest, path, verify_full);
  const MappedFile file(path + "/plan.json");
  plan_ = parse_plan(file.text());
  if (manifest.plan_digest != manifest.files.at("plan.json").sha256)
    refuse(plan_format::E0602, "plan.json of " + path, "digest " + manifest.files.at("plan.json").sha256,
           "the manifest's plan_digest " + manifest.plan_digest);
  if (manifest.model_digest != plan_.provenance.model_digest)
    refuse(plan_format::E0602, "plan.json of " + path, "model digest " + plan_.provenance.model_digest,
           "the manifest's model_digest " + manifest.model_digest);
  verify_plan(plan_);
  admit(plan_);
  const bool is_mapped = manifest.files.contains(MappedWeights::NAME);
  check_directory(path, is_mapped, weights);
  if (is_mapped) mapped_ = std::make_unique<MappedWeights>(path + "/" + MappedWeights::NAME, weights);
  map_weights();
  if (mapped_) mapped_->check_digests();
}

void Artifact::map_weights() {
  if (plan_.weights.empty()) return;
  const auto index = read_index(path_);
  std::map<std::string, const SafetensorsFile*> opened;
  for (const Weight& weight : plan_.weights) {
    if (mapped_ && mapped_->holds(weight.name)) {
      weights_.push_back(mapped_->take(weight));
      continue;
    }
    const StoredTensor* stored = nullptr;
    if (const auto at = index.find(weight.name); at != index.end()) {
      const SafetensorsFile*& file = opened[at->second];
      if (!file) file = files_.emplace_back(std::make_unique<SafetensorsFile>(path_ + "/" + at->second)).get();
      stored = file->find(weight.name);
    }
    check_weight(weight, stored);
    weights_.push_back(stored);
  }
}

int64_t Artifact::weight_bytes() const {
  int64_t bytes = 0;
  for (const StoredTensor* weight : weights_) bytes += weight->bytes;
  return bytes;
}

}  // namespace dsv41c
