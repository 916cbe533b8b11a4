// Reads dsv41c.json and checks the listed files against it.
#include "manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "json_reader.h"
#include "mapped_file.h"
#include "sha256.h"

namespace dsv41c {
namespace {

using Json = nlohmann::json;
constexpr const char* NAME = "dsv41c.json";

[[noreturn]] void malformed(const std::string& path, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = "bad manifest " + path,
               .found = found,
               .needed = needed,
               .action = "compile the artifact again"});
}

void check_version(const Json& root, const std::string& path) {
  const auto found = strict_integer(root.at("format_version"));
  if (found == plan_format::FORMAT_VERSION) return;
  throw Error({.code = plan_format::E0604,
               .subject = "artifact format of " + path,
               .found = "format version " + std::to_string(found),
               .needed = "format version " + std::to_string(plan_format::FORMAT_VERSION),
               .action = "compile the artifact with this version of dsv41c"});
}

void check_plan_only(const Json& root, const std::string& path) {
  if (!root.at("plan_only").get<bool>()) return;
  throw Error({.code = plan_format::E0603,
               .subject = path + " was compiled with --plan-only",
               .found = "an artifact without weights",
               .needed = "an artifact with weights",
               .action = "compile again without --plan-only"});
}

void check_features(const Manifest& manifest, const std::string& path) {
  std::string known;
  for (const auto& name : plan_format::FEATURES) known += (known.empty() ? "" : ", ") + std::string(name);
  for (const std::string& feature : manifest.required_features) {
    if (std::ranges::find(plan_format::FEATURES, feature) != std::end(plan_format::FEATURES)) continue;
    throw Error({.code = plan_format::E0503,
                 .subject = path + " requires a feature that this executor lacks",
                 .found = "feature " + feature,
                 .needed = "features out of: " + known,
                 .action = "install a newer dsv41c, or compile the artifact with this one"});
  }
}

void check_name(const std::string& name, const std::string& path) {
  const bool leaves = name.empty() || name.front() == '/' || ("/" + name + "/").find("/../") != std::string::npos;
  if (leaves) malformed(path, "file name \"" + name + "\"", "names relative to the artifact directory");
}

void check_file(const std::string& directory, const std::string& name, const ListedFile& listed, bool with_digest) {
  const MappedFile file(directory + "/" + name);
  std::string found = std::to_string(file.size()) + " bytes", needed = std::to_string(listed.bytes) + " bytes";
  if (file.size() == listed.bytes) {
    if (!with_digest) return;
    found = sha256_hex(file.data(), static_cast<size_t>(file.size()));
    needed = listed.sha256;
    if (found == needed) return;
  }
  throw Error({.code = plan_format::E0602,
               .subject = file.path() + " is not the file that the manifest lists",
               .found = found,
               .needed = needed,
               .action = "copy the artifact again, or compile it again"});
}

}  // namespace

Manifest read_manifest(const std::string& directory) {
  const std::string path = directory + "/" + NAME;
  const MappedFile file(path);
  const Json root = Json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) malformed(path, "no JSON object", "the JSON object that compile writes");
  Manifest manifest;
  try {
    check_version(root, path);
    check_plan_only(root, path);
    manifest.required_features = root.at("required_features").get<std::vector<std::string>>();
    manifest.model_digest = root.at("model_digest").get<std::string>();
    manifest.plan_digest = root.at("plan_digest").get<std::string>();
    for (const auto& [name, node] : root.at("files").items()) {
      check_name(name, path);
      manifest.files[name] = {strict_integer(node.at("bytes")), node.at("sha256").get<std::string>()};
    }
  } catch (const Json::exception& e) {
    malformed(path, e.what(), "the keys that compile writes");
  }
  check_features(manifest, path);
  if (!manifest.files.contains("plan.json")) malformed(path, "no entry for plan.json", "plan.json among the files");
  return manifest;
}

void check_files(const Manifest& manifest, const std::string& directory, bool full) {
  for (const auto& [name, listed] : manifest.files)
    check_file(directory, name, listed,
               full || name == "plan.json" || name == "model.safetensors.index.json" || name == "weights.json");
}

}  // namespace dsv41c
