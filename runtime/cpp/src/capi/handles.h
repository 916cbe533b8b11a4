// What the handles of the C interface hold. Children share what they need, so that any order of closing is safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capi/status.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "plan.h"

struct dsv_buffer {
  std::string bytes;
};

struct dsv_artifact {
  std::string path, weights, plan_json, model, digest, target;
  bool verify_full;
  dsv41c::Plan plan;
  dsv41c::EngineLimits limits;

  struct Port {
    std::string name;
    int32_t dtype;
    uint32_t direction;
    std::vector<int64_t> dims;
    std::vector<const char*> dim_names;
  };
  std::vector<Port> ports;
};

struct dsv_engine {
  std::shared_ptr<dsv41c::Engine> engine;
};

struct dsv_request {
  std::shared_ptr<dsv41c::Outbox> outbox;
};

struct dsv_session {
  std::shared_ptr<dsv41c::Session> session;  // a call that runs keeps it
};
