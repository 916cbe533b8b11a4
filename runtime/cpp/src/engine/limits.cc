// Reads the limits of an engine from the plan and the model's files.
#include "engine/limits.h"

#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "mapped_file.h"
#include "step_limits.h"

namespace dsv41c {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& subject, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = subject,
               .found = found,
               .needed = needed,
               .action = "compile the artifact again"});
}

Json read_object(const std::string& path) {
  const MappedFile file(path);
  Json root = Json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) refuse("bad artifact file " + path, "no JSON object", "the JSON object that compile wrote");
  return root;
}

int32_t read_id(const Json& node, const std::string& path) {
  const bool fits = node.is_number_integer() && node >= 0 && node <= std::numeric_limits<int32_t>::max();
  if (!fits) refuse("bad artifact file " + path, "eos_token_id = " + node.dump(), "integers");
  return node.get<int32_t>();
}

// generation_config.json decides where it exists, as in Hugging Face libraries; it may list several ids.
std::vector<int32_t> read_eos_ids(const std::string& directory) {
  std::string path = directory + "/generation_config.json";
  if (access(path.c_str(), F_OK) != 0) path = directory + "/config.json";
  const Json root = read_object(path);
  const auto found = root.find("eos_token_id");
  std::vector<int32_t> ids;
  if (found == root.end() || found->is_null()) return ids;
  if (!found->is_array()) return {read_id(*found, path)};
  for (const Json& node : *found) ids.push_back(read_id(node, path));
  return ids;
}

int64_t required(const std::optional<int64_t>& limit, const char* name) {
  if (limit && *limit > 0) return *limit;
  refuse(std::string(name) + " of the plan", "none", "the state of the model: slots, pages and logits");
}

int64_t most_rows(const Plan& plan, std::string_view axis, int64_t otherwise) {
  int64_t most = 0;
  for (const Method& method : plan.methods)
    if (method.axis == axis) most = std::max(most, symbol_of(plan, method).hi);
  return most > 0 ? most : otherwise;
}

void lower(const char* name, int64_t asked, int64_t& limit) {
  if (asked == 0) return;
  if (asked < 0 || asked > limit)
    throw Error({.code = plan_format::E0901,
                 .subject = name,
                 .found = std::to_string(asked),
                 .needed = "at most " + std::to_string(limit) + ", as the artifact has, or 0 for that",
                 .action = "pass a smaller number, or compile for a larger one"});
  limit = asked;
}

}  // namespace

EngineLimits engine_limits(const Plan& plan, const std::string& directory) {
  const Limits step = limits_of(plan, [](const State&) { return nullptr; });
  const auto options = Json::parse(plan.provenance.options);
  EngineLimits limits;
  limits.slots = required(step.slots, "slots");
  limits.context = required(step.positions, "positions");
  limits.block_size = required(step.block_size, "block size");
  limits.pages = required(step.pages, "pages");
  limits.vocabulary = required(step.vocabulary, "vocabulary");
  limits.rows = most_rows(plan, "rows", limits.slots);
  limits.kept_rows = most_rows(plan, "kept_rows", limits.rows);
  limits.logit_rows = most_rows(plan, "output_rows", limits.kept_rows);
  limits.keep_tokens = options.value("suffix_keep_tokens", int64_t{0});
  limits.runs_all_rows = options.value("suffix_mode", std::string("off")) != "compact";
  limits.eos_ids = read_eos_ids(directory);
  return limits;
}

EngineLimits lowered(EngineLimits limits, const LowerLimits& asked) {
  lower("max_batch", asked.slots, limits.slots);
  lower("max_batch_tokens", asked.rows, limits.rows);
  lower("max_context", asked.context, limits.context);
  lower("kv_pages", asked.pages, limits.pages);
  if (asked.queue > 0) limits.queue = asked.queue;
  if (limits.rows < limits.slots || limits.context < 2)
    throw Error({.code = plan_format::E0901,
                 .subject = limits.rows < limits.slots ? "max_batch_tokens" : "max_context",
                 .found = std::to_string(limits.rows < limits.slots ? limits.rows : limits.context),
                 .needed = limits.rows < limits.slots ? "at least max_batch " + std::to_string(limits.slots)
                                                      : std::string("at least 2: one prompt token and one new one"),
                 .action = "correct the options"});
  return limits;
}

std::string model_type(const std::string& directory) {
  const Json root = read_object(directory + "/config.json");
  const auto found = root.find("model_type");
  return found != root.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace dsv41c
