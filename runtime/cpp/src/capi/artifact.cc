// dsv_artifact: manifest, plan and the model's files, without weights.
#include <cstring>

#include "capi/entries.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "manifest.h"
#include "mapped_file.h"
#include "memory_budget.h"
#include "verify.h"

namespace dsv41c::capi {
namespace {

constexpr int64_t ANY = -1;

struct DlType {
  int32_t code, bits;
};
// By dsv41c_dtype; the codes are DLPack's.
constexpr DlType DL_TYPES[] = {{2, 32}, {4, 16}, {10, 8}, {14, 8}, {0, 8}, {1, 8}, {0, 32}, {0, 64}, {2, 64}, {6, 8}};

std::vector<dsv_artifact::Port> ports_of(const Plan& plan, const EngineLimits& limits) {
  std::vector<dsv_artifact::Port> ports = {
      {"tokens", DSV41C_INT32, DSV_PORT_IN, {ANY}, {"tokens"}},
      {"rows", DSV41C_INT32, DSV_PORT_IN, {ANY}, {"rows"}},
      {"logits", DSV41C_FLOAT32, DSV_PORT_OUT, {ANY, limits.vocabulary}, {"rows", ""}},
      {"choices", DSV41C_INT32, DSV_PORT_OUT, {ANY}, {"rows"}},
  };
  for (const State& state : plan.state)
    ports.push_back(
        {state.name, state.dtype, DSV_PORT_STATE, state.sizes, std::vector<const char*>(state.sizes.size(), "")});
  return ports;
}

uint32_t count_segments(const Plan& plan) {
  size_t count = 0;
  for (const Method& method : plan.methods)
    count += static_cast<size_t>(std::ranges::count(method.steps, StepKind::segment, &dsv41c::Step::kind));
  return static_cast<uint32_t>(count);
}

uint64_t weight_bytes(const Plan& plan) {
  int64_t sum = 0;
  for (const Weight& weight : plan.weights) {
    int64_t bytes = item_bytes(weight.dtype);
    for (int64_t size : weight.sizes) bytes *= size;
    sum += bytes;
  }
  return static_cast<uint64_t>(sum);
}

std::unique_ptr<dsv_artifact> open(const std::string& path, const dsv_open_options& options) {
  auto made = std::make_unique<dsv_artifact>();
  const Manifest manifest = read_manifest(path);
  check_files(manifest, path, options.verify == 1);
  made->path = path;
  if (options.weights) made->weights = options.weights;
  made->verify_full = options.verify == 1;
  made->plan_json = MappedFile(path + "/plan.json").text();
  made->plan = parse_plan(made->plan_json);
  verify_plan(made->plan);
  made->limits = engine_limits(made->plan, path);
  made->model = model_type(path);
  made->digest = manifest.plan_digest;
  made->target = made->plan.target;
  made->ports = ports_of(made->plan, made->limits);
  return made;
}

dsv_artifact_info info_of(const dsv_artifact& artifact) {
  const EngineLimits& limits = artifact.limits;
  dsv_artifact_info info{};
  info.model = artifact.model.c_str();
  info.digest = artifact.digest.c_str();
  info.compiler = artifact.plan.provenance.producer.c_str();
  info.target = artifact.target.c_str();
  info.n_ports = static_cast<uint32_t>(artifact.ports.size());
  info.n_segments = count_segments(artifact.plan);
  info.vocab = static_cast<uint32_t>(limits.vocabulary);
  info.max_batch = static_cast<uint32_t>(limits.slots);
  info.max_batch_tokens = static_cast<uint32_t>(limits.rows);
  info.max_context = static_cast<uint64_t>(limits.context);
  info.block_size = static_cast<uint64_t>(limits.block_size);
  info.kv_pages = static_cast<uint64_t>(limits.pages);
  info.weight_bytes = weight_bytes(artifact.plan);
  info.planned_bytes = static_cast<uint64_t>(planned_memory(artifact.plan, artifact.target != "cpu").total());
  info.eos_ids = limits.eos_ids.data();
  info.n_eos_ids = limits.eos_ids.size();
  return info;
}

}  // namespace

const void* buffer_data(const dsv_buffer* buffer, size_t* length) {
  if (length) *length = buffer ? buffer->bytes.size() : 0;
  return buffer ? buffer->bytes.c_str() : nullptr;
}

void buffer_free(dsv_buffer* buffer) { delete buffer; }

dsv_status* artifact_open(const char* path, const dsv_open_options* options, dsv_artifact** out) {
  return guard([&] {
    required(out, "out") = nullptr;
    *out = open(&required(path, "path"), read_open_options(options)).release();
  });
}

dsv_status* artifact_info(const dsv_artifact* artifact, dsv_artifact_info* info) {
  return guard([&] { write_struct(info, "dsv_artifact_info", info_of(required(artifact, "artifact"))); });
}

dsv_status* artifact_port(const dsv_artifact* artifact, uint32_t index, dsv_port* port) {
  return guard([&] {
    const auto& ports = required(artifact, "artifact").ports;
    if (index >= ports.size())
      throw Error({.code = plan_format::E0901,
                   .subject = "index of artifact_port",
                   .found = std::to_string(index),
                   .needed = "below " + std::to_string(ports.size()),
                   .action = "ask for n_ports of the artifact's info"});
    const dsv_artifact::Port& found = ports[index];
    const DlType type = DL_TYPES[found.dtype];
    write_struct(port, "dsv_port",
                 dsv_port{0, found.name.c_str(), type.code, type.bits, 1, static_cast<int32_t>(found.dims.size()),
                          found.dims.data(), found.dim_names.data(), found.direction, 0});
  });
}

dsv_status* artifact_plan_json(const dsv_artifact* artifact, dsv_buffer** out) {
  return guard([&] {
    required(out, "out") = nullptr;
    *out = new dsv_buffer{required(artifact, "artifact").plan_json};
  });
}

void artifact_close(dsv_artifact* artifact) { delete artifact; }

}  // namespace dsv41c::capi
