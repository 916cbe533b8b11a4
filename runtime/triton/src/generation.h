// One request: what it asks for, and its responses.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "settings.h"

namespace dsv41c_triton {

class Generation {
 public:
  // Owns the request from here on. Throws, and owns nothing, where Triton gives no response factory.
  Generation(TRITONBACKEND_ModelInstance* triton, TRITONBACKEND_Request* request);

  // What to generate, valid as long as this; the engine checks the values. A Refusal for what is no request at all.
  const dsv_generate_params& read(const Settings& settings);
  bool is_cancelled() const noexcept;
  // Part of the answer. A Refusal where Triton takes no response.
  void add(const dsv_event& event);
  // The final response, then statistics, then the request goes back to Triton. One of the two, once.
  void finish(const dsv_event& event) noexcept;
  void fail(const Refusal& refusal, uint64_t queue_ns = 0) noexcept;

 private:
  void read_inputs();
  void read_fields();
  void send(const dsv_event& part, const std::string& finish, uint32_t flags);
  // Writes a tensor, if it was asked for.
  template <class To, class From>
  void put(TRITONBACKEND_Response* response, const char* name, std::vector<int64_t> shape, const From* from,
           size_t count);
  void release(bool success, uint64_t queue_ns) noexcept;

  TRITONBACKEND_ModelInstance* const triton_;
  TRITONBACKEND_Request* const request_;
  const Owned<TRITONBACKEND_ResponseFactory> factory_;
  const uint64_t start_ns_;
  bool is_batched_ = false, streams_ = false;
  std::vector<int32_t> prompt_, stop_ids_;
  Json fields_ = Json::object();  // sampling_parameters and the request's parameters
  std::set<std::string> outputs_;
  dsv_generate_params params_;
  std::vector<int32_t> context_;           // streaming: the last tokens before the next response
  std::vector<int32_t> answer_, top_ids_;  // not streaming: all of it
  std::vector<float> logprobs_, top_logprobs_;
};

}  // namespace dsv41c_triton
