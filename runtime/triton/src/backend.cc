// The entry points that Triton calls.
#include <memory>

#include "instance.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace dsv41c_triton;  // every other name here is C's

namespace {

struct Backend {
  Parameters defaults;
  Families families;
};

struct Model {
  std::string name, version;
  Settings settings;
  Owned<dsv_artifact> artifact;
  Families families;
};

Json json_of(TRITONSERVER_Message* message) {
  const char* base = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  return Json::parse(base, base + size);
}

void set_config(TRITONBACKEND_Model* triton, const Json& config) {
  const std::string text = config.dump();
  TRITONSERVER_Message* message = nullptr;
  check(TRITONSERVER_MessageNewFromSerializedJson(&message, text.data(), text.size()));
  const Owned<TRITONSERVER_Message> owned(message);
  check(TRITONBACKEND_ModelSetConfig(triton, 1, message));
}

Owned<dsv_artifact> open(const Settings& settings) {
  dsv_open_options options = settings.open;
  options.weights = settings.weights.empty() ? nullptr : settings.weights.c_str();
  dsv_artifact* artifact = nullptr;
  check(api().artifact_open(settings.artifact.c_str(), &options, &artifact));
  return Owned<dsv_artifact>(artifact);
}

// Triton keeps the state until the matching Finalize.
template <class State, class Of>
void keep(std::unique_ptr<State> state, TE (*set)(Of*, void*), Of* of) {
  check(set(of, state.get()));
  state.release();
}

template <class State, class Of>
State* kept(TE (*call)(Of*, void**), Of* of) {
  return static_cast<State*>(get(call, of));
}

}  // namespace

EXPORTED TE TRITONBACKEND_Initialize(TRITONBACKEND_Backend* triton) {
  return guarded([&] {
    uint32_t major = 0, minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != 1 || minor < 19)
      throw Refusal(TRITONSERVER_ERROR_UNSUPPORTED, "dsv41c: backend interface of the server: found " +
                                                        std::to_string(major) + "." + std::to_string(minor) +
                                                        ", needed 1.19 or a newer 1.x (Triton 24.04)");
    api();
    const Json config = json_of(get(TRITONBACKEND_BackendConfig, triton));
    keep(std::make_unique<Backend>(Backend{server_parameters(config), metric_families()}),
         TRITONBACKEND_BackendSetState, triton);
  });
}

EXPORTED TE TRITONBACKEND_Finalize(TRITONBACKEND_Backend* triton) {
  return guarded([&] { delete kept<Backend>(TRITONBACKEND_BackendState, triton); });
}

EXPORTED TE TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute* attribute) {
  return guarded([&] {
    check(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attribute, true));
    check(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attribute, TRITONSERVER_KIND_MODEL, 1, nullptr, 0));
  });
}

EXPORTED TE TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* triton) {
  return guarded([&] {
    const auto& backend = *kept<Backend>(TRITONBACKEND_BackendState, get(TRITONBACKEND_ModelBackend, triton));
    const std::string name = get(TRITONBACKEND_ModelName, triton);
    const auto version = get(TRITONBACKEND_ModelVersion, triton);
    TRITONBACKEND_ArtifactType type{};
    const char* directory = nullptr;
    check(TRITONBACKEND_ModelRepository(triton, &type, &directory));
    TRITONSERVER_Message* message = nullptr;
    check(TRITONBACKEND_ModelConfig(triton, 1, &message));
    const Owned<TRITONSERVER_Message> owned(message);
    const Json config = json_of(message), full = completed(config);
    Settings settings(full, backend.defaults, directory, version);
    Owned<dsv_artifact> artifact = open(settings);
    if (full != config && get(TRITONBACKEND_ModelAutoCompleteConfig, triton)) set_config(triton, full);
    keep(std::make_unique<Model>(
             Model{name, std::to_string(version), std::move(settings), std::move(artifact), backend.families}),
         TRITONBACKEND_ModelSetState, triton);
  });
}

EXPORTED TE TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* triton) {
  return guarded([&] { delete kept<Model>(TRITONBACKEND_ModelState, triton); });
}

EXPORTED TE TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* triton) {
  return guarded([&] {
    const auto& model = *kept<Model>(TRITONBACKEND_ModelState, get(TRITONBACKEND_ModelInstanceModel, triton));
    Metrics metrics(model.families, {{"model", model.name},
                                     {"version", model.version},
                                     {"instance", get(TRITONBACKEND_ModelInstanceName, triton)}});
    keep(std::make_unique<Instance>(model.artifact.get(), model.settings, triton, std::move(metrics)),
         TRITONBACKEND_ModelInstanceSetState, triton);
  });
}

EXPORTED TE TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* triton) {
  return guarded([&] { delete kept<Instance>(TRITONBACKEND_ModelInstanceState, triton); });
}

EXPORTED TE TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* triton, TRITONBACKEND_Request** requests,
                                               uint32_t count) {
  return guarded([&] {
    auto& instance = *kept<Instance>(TRITONBACKEND_ModelInstanceState, triton);
    for (uint32_t i = 0; i < count; ++i) instance.execute(requests[i]);
  });
}

// Servers from 25.12 on ask.
EXPORTED TE TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance* triton) {
  return guarded([&] { kept<Instance>(TRITONBACKEND_ModelInstanceState, triton)->check_ready(); });
}
