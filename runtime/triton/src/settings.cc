#include "settings.h"

#include <filesystem>

namespace dsv41c_triton {

namespace {

struct Tensor {
  const char* type;
  Json dims;
  bool is_optional = false, is_listed = true;  // listed by a config that is completed
};
using Tensors = std::map<std::string, Tensor>;

const Tensors& tensors_of(const std::string& side) {
  static const Tensors inputs = {{"input_ids", {"TYPE_INT64", {-1}}},
                                 {"sampling_parameters", {"TYPE_STRING", {1}, true}},
                                 {"stream", {"TYPE_BOOL", {1}, true}}};
  static const Tensors outputs = {
      {"output_ids", {"TYPE_INT64", {-1}}},      {"finish_reason", {"TYPE_STRING", {1}}},
      {"output_logprobs", {"TYPE_FP32", {-1}}},  {"top_ids", {"TYPE_INT64", {-1, -1}}},
      {"top_logprobs", {"TYPE_FP32", {-1, -1}}}, {"context_ids", {"TYPE_INT64", {-1}, false, false}}};
  return side == "input" ? inputs : outputs;
}

void complete(Json& config, const std::string& side) {
  Json& listed = config[side];
  for (const Json& found : listed) {
    const std::string name = found.at("name"), subject = side + " " + name + " of config.pbtxt";
    const Tensor& needed = entry(tensors_of(side), side + " of config.pbtxt", name);
    if (found.at("data_type") != needed.type) throw invalid(subject, found.at("data_type"), needed.type);
    if (found.at("dims") != needed.dims) throw invalid(subject, "dims " + found["dims"].dump(), needed.dims.dump());
  }
  if (!listed.empty()) return;
  for (const auto& [name, tensor] : tensors_of(side)) {
    if (!tensor.is_listed) continue;
    listed.push_back({{"name", name}, {"data_type", tensor.type}, {"dims", tensor.dims}});
    if (tensor.is_optional) listed.back()["optional"] = true;
  }
}

using Setter = void (*)(Settings&, const std::string& subject, const std::string& text);

template <auto Field>
void set(Settings& settings, const std::string& subject, const std::string& text) {
  auto& field = settings.engine.*Field;
  const Json value = Json::parse(text, nullptr, false);
  field = number<std::remove_reference_t<decltype(field)>>(subject, value.is_discarded() ? Json(text) : value);
}

void set_verify(Settings& settings, const std::string& subject, const std::string& text) {
  settings.open.verify = entry<uint32_t>({{"sizes", 0}, {"full", 1}}, subject, text);
}

const std::map<std::string, Setter>& setters() {
  using Options = dsv_engine_options;
  static const std::map<std::string, Setter> table = {
      {"artifact", [](Settings& settings, const std::string&, const std::string& text) { settings.artifact = text; }},
      {"weights", [](Settings& settings, const std::string&, const std::string& text) { settings.weights = text; }},
      {"verify", set_verify},
      {"device_id", set<&Options::device_id>},
      {"memory_budget", set<&Options::memory_budget>},
      {"kv_pages", set<&Options::kv_pages>},
      {"max_context", set<&Options::max_context>},
      {"max_batch", set<&Options::max_batch>},
      {"max_batch_tokens", set<&Options::max_batch_tokens>},
      {"max_queue", set<&Options::max_queue>}};
  return table;
}

}  // namespace

Parameters server_parameters(const Json& backend_config) {
  Parameters parameters;
  const Json settings = backend_config.value("cmdline", Json::object());
  for (const auto& [name, value] : settings.items())
    if (name.find('-') == std::string::npos) parameters[name] = value;  // with a hyphen: the server's own
  return parameters;
}

Settings::Settings(const Json& config, Parameters parameters, const std::string& directory, uint64_t version) {
  DSV_INIT(&open);
  DSV_INIT(&engine);
  const Json listed = config.value("parameters", Json::object());
  for (const auto& [name, value] : listed.items()) parameters[name] = value.value("string_value", "");
  for (const auto& [name, text] : parameters)
    entry(setters(), "parameter of the model", name)(*this, "parameter " + name, text);
  const std::filesystem::path base = directory;
  artifact = base / (artifact.empty() ? std::to_string(version) : artifact);
  if (!weights.empty()) weights = base / weights;
  const auto batch = number<uint32_t>("max_batch_size", config.value("max_batch_size", 0));
  if (batch > 0 && engine.max_batch > 0 && engine.max_batch != batch)
    throw invalid("max_batch_size", std::to_string(batch), "the parameter max_batch, " + parameters.at("max_batch"));
  if (batch > 0) engine.max_batch = batch;
  is_batched = batch > 0;
  is_decoupled = config.value("model_transaction_policy", Json::object()).value("decoupled", false);
}

Json completed(Json config) {
  complete(config, "input");
  complete(config, "output");
  if (!config.contains("model_transaction_policy")) config["model_transaction_policy"] = {{"decoupled", true}};
  return config;
}

}  // namespace dsv41c_triton
