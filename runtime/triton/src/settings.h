// What config.pbtxt and --backend-config=dsv41c,NAME=VALUE say about a model.
#pragma once

#include <map>
#include <string>

#include "calls.h"

namespace dsv41c_triton {

using Parameters = std::map<std::string, std::string>;

// The server's defaults; a parameter of a model wins over them.
Parameters server_parameters(const Json& backend_config);

struct Settings {
  // `directory` holds config.pbtxt. A Refusal for a parameter that is unknown, malformed or in conflict.
  Settings(const Json& config, Parameters parameters, const std::string& directory, uint64_t version);

  std::string artifact, weights;  // directories; no weights: the artifact has them
  dsv_open_options open;
  dsv_engine_options engine;
  bool is_decoupled, is_batched;  // batched: tensors have a leading 1, because max_batch_size is above 0
};

// The config with inputs, outputs and transaction policy where it says nothing about them; a Refusal with both values
// for tensors that are not this backend's.
Json completed(Json config);

}  // namespace dsv41c_triton
