// Reads a request.
#include <cstring>

#include "generation.h"

namespace dsv41c_triton {

namespace {

using Setter = void (*)(dsv_generate_params&, const std::string& name, const Json& value);

template <auto Field>
void set(dsv_generate_params& params, const std::string& name, const Json& value) {
  params.*Field = number<std::remove_reference_t<decltype(params.*Field)>>(name, value);
}

void set_ignore_eos(dsv_generate_params& params, const std::string& name, const Json& value) {
  if (!value.is_boolean()) throw invalid(name, value.dump(), "true or false");
  params.flags = value.get<bool>() ? DSV_GEN_IGNORE_EOS : 0;
}

const std::map<std::string, Setter>& setters() {
  using Params = dsv_generate_params;
  static const std::map<std::string, Setter> table = {{"max_tokens", set<&Params::max_new_tokens>},
                                                      {"min_tokens", set<&Params::min_new_tokens>},
                                                      {"temperature", set<&Params::temperature>},
                                                      {"top_p", set<&Params::top_p>},
                                                      {"top_k", set<&Params::top_k>},
                                                      {"logprobs", set<&Params::n_logprobs>},
                                                      {"seed", set<&Params::seed>},
                                                      {"priority", set<&Params::priority>},
                                                      {"deadline_ms", set<&Params::deadline_ms>},
                                                      {"ignore_eos", set_ignore_eos},
                                                      {"stop_token_ids", nullptr}};  // a list, read apart
  return table;
}

Json value_of(TRITONSERVER_ParameterType type, const void* value) {
  if (type == TRITONSERVER_PARAMETER_INT) return *static_cast<const int64_t*>(value);
  if (type == TRITONSERVER_PARAMETER_BOOL) return *static_cast<const bool*>(value);
  if (type == TRITONSERVER_PARAMETER_DOUBLE) return *static_cast<const double*>(value);
  return static_cast<const char*>(value);
}

std::string bytes_of(TRITONBACKEND_Input* input, uint32_t buffers) {
  std::string bytes;
  for (uint32_t i = 0; i < buffers; ++i) {
    const void* part = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_InputBuffer(input, i, &part, &size, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU) throw invalid("input tensor", "GPU memory", "host memory");
    bytes.append(static_cast<const char*>(part), size);
  }
  return bytes;
}

std::vector<int32_t> ids_of(const std::string& bytes) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    int64_t id = 0;
    std::memcpy(&id, bytes.data() + at, sizeof id);
    ids.push_back(number<int32_t>("input_ids[" + std::to_string(ids.size()) + "]", id));
  }
  return ids;
}

// The object in a BYTES tensor with one element: four bytes of length, then the text.
Json object_of(const std::string& bytes) {
  const std::string text = bytes.size() < 4 ? "" : bytes.substr(4);
  Json fields = Json::parse(text, nullptr, false);
  if (!fields.is_object()) throw invalid("sampling_parameters", '"' + text.substr(0, 64) + '"', "a JSON object");
  return fields;
}

}  // namespace

const dsv_generate_params& Generation::read(const Settings& settings) {
  is_batched_ = settings.is_batched;
  dsv_generate_params_init(&params_);
  const auto outputs = get(TRITONBACKEND_RequestOutputCount, request_);
  for (uint32_t i = 0; i < outputs; ++i) outputs_.insert(get(TRITONBACKEND_RequestOutputName, request_, i));
  read_inputs();
  if (streams_ && !settings.is_decoupled) throw invalid("stream", "true", "false: the model is not decoupled");
  read_fields();
  params_.tokens = prompt_.data();
  params_.n_tokens = prompt_.size();
  params_.stop_ids = stop_ids_.data();
  params_.n_stop_ids = stop_ids_.size();
  params_.id = get(TRITONBACKEND_RequestId, request_);
  return params_;
}

void Generation::read_inputs() {
  const auto count = get(TRITONBACKEND_RequestInputCount, request_);
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = get(TRITONBACKEND_RequestInputByIndex, request_, i);
    const char* text = nullptr;
    const int64_t* shape = nullptr;
    uint32_t buffers = 0;
    check(TRITONBACKEND_InputProperties(input, &text, nullptr, &shape, nullptr, nullptr, &buffers));
    const std::string name = text, bytes = bytes_of(input, buffers);
    if (is_batched_ && shape[0] != 1) throw invalid(name, std::to_string(shape[0]) + " rows", "one prompt a request");
    if (name == "input_ids") prompt_ = ids_of(bytes);
    if (name == "sampling_parameters") fields_ = object_of(bytes);
    if (name == "stream") streams_ = bytes.at(0) != 0;
  }
}

void Generation::read_fields() {
  const auto count = get(TRITONBACKEND_RequestParameterCount, request_);
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TRITONSERVER_ParameterType type{};
    const void* value = nullptr;
    check(TRITONBACKEND_RequestParameter(request_, i, &name, &type, &value));
    if (fields_.contains(name)) throw invalid(name, "two values", "a parameter or a field of sampling_parameters");
    fields_[name] = value_of(type, value);
  }
  for (const auto& [name, value] : fields_.items()) {
    if (const Setter setter = entry(setters(), "parameter of the request", name)) {
      setter(params_, name, value);
      continue;
    }
    if (!value.is_array()) throw invalid(name, value.dump(), "a list of token ids");
    for (const Json& id : value) stop_ids_.push_back(number<int32_t>(name, id));
  }
}

}  // namespace dsv41c_triton
