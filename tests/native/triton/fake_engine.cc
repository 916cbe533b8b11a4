// libdsv41c.so.1 without a model: an engine that counts upwards. Its artifact is a directory with fake.json, whose
// fields are those of Facts. Steps, slots, pages, queue and events are as the header says.
#include <dsv41c/dsv41c.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

struct dsv_status {
  dsv_code code;
  std::string message, json;
};

struct Facts {
  uint32_t vocab = 1000, max_batch = 4, max_queue = 1024;
  uint64_t max_context = 4096, kv_pages = 64, block_size = 128;
  uint64_t step_us = 0;
  uint64_t fail_at_step = 0;  // the step that ends the engine
  std::string fault;          // what sanitizers must notice: "race" or "overflow"
  std::string gate;           // no second token of any request is computed before this file exists
};

struct dsv_artifact {
  Facts facts;
};

struct dsv_request {
  std::vector<int32_t> tokens;
  dsv_generate_params params{};
  dsv_event_fn callback = nullptr;
  void* user = nullptr;
  uint64_t produced = 0;
  int32_t last = 0;
  std::atomic<bool> cancelled = false;
  bool has_ended = false;
  Clock::time_point until = Clock::time_point::max();
  std::shared_ptr<dsv_request> self;  // held by the caller's handle
};

namespace {

using Request = std::shared_ptr<dsv_request>;

dsv_status* error(dsv_code code, const std::string& subject, const std::string& found, const std::string& needed) {
  const Json fields = {{"code", "DSV41C-E0901"}, {"subject", subject}, {"where", nullptr},
                       {"found", found},         {"needed", needed},   {"do", "change it"}};
  return new dsv_status{code, subject + ": found " + found + ", needed " + needed, fields.dump()};
}

dsv_status* invalid(const std::string& subject, const std::string& found, const std::string& needed) {
  return error(DSV_E_INVALID_ARG, subject, found, needed);
}

}  // namespace

struct dsv_engine {
  explicit dsv_engine(const Facts& facts) : facts(facts) {
    DSV_INIT(&stats);
    stats.kv_pages_total = facts.kv_pages;
    stats.slots_total = facts.max_batch;
    worker = std::thread([this] { run(); });
  }
  ~dsv_engine() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    worker.join();
  }

  void misbehave() {
    if (facts.fault == "race") unguarded = unguarded + 1;
    if (facts.fault == "overflow") unguarded = std::vector<char>(7).data()[facts.fault.size()];
  }

  uint64_t pages_of(const dsv_request& request) const {
    return (request.tokens.size() + request.params.max_new_tokens + facts.block_size - 1) / facts.block_size;
  }

  // The end of a request, with the mutex not held.
  void end(const Request& request, uint32_t finish, dsv_code code, const char* message) {
    dsv_event event;
    DSV_INIT(&event);
    event.kind = finish == DSV_FIN_ERROR ? DSV_EV_ERROR : DSV_EV_DONE;
    event.finish = finish;
    event.code = code;
    event.first_index = request->produced;
    event.message = message;
    event.error_json = "";
    request->callback(request->user, &event);
  }

  void drop(const Request& request, uint64_t dsv_stats::* counter) {
    std::lock_guard lock(mutex);
    if (std::erase(active, request) == 1) {
      stats.kv_pages_used -= pages_of(*request);
      --stats.slots_used;
    }
    std::erase(queue, request);
    request->has_ended = true;
    ++(stats.*counter);
    count();
  }

  void count() {
    stats.requests_active = active.size();
    stats.requests_queued = queue.size();
  }

  bool is_late(const Request& request) const { return Clock::now() > request->until; }

  // Ends what was cancelled, is late, or cannot go on.
  void sweep(std::vector<Request> all, bool broken) {
    for (const Request& request : all) {
      if (request->has_ended || (!broken && !request->cancelled && !is_late(request))) continue;
      drop(request, broken ? &dsv_stats::requests_failed : &dsv_stats::requests_cancelled);
      if (broken)
        end(request, DSV_FIN_ERROR, DSV_E_DEVICE, "a step failed");
      else if (request->cancelled)
        end(request, DSV_FIN_CANCEL, DSV_E_CANCELLED, "cancelled");
      else
        end(request, DSV_FIN_DEADLINE, DSV_E_DEADLINE, "the deadline has passed");
    }
  }

  void admit() {
    while (!queue.empty() && active.size() < facts.max_batch &&
           stats.kv_pages_used + pages_of(*queue.front()) <= facts.kv_pages) {
      stats.kv_pages_used += pages_of(*queue.front());
      ++stats.slots_used;
      active.push_back(queue.front());
      queue.erase(queue.begin());
    }
    count();
  }

  void step(const Request& request) {
    if (request->cancelled) return;
    misbehave();
    request->last = (request->last + 1) % static_cast<int32_t>(facts.vocab);
    const float logprob = -0.5f - static_cast<float>(request->produced);
    dsv_event event;
    DSV_INIT(&event);
    event.kind = DSV_EV_TOKENS;
    event.tokens = &request->last;
    event.n_tokens = 1;
    event.first_index = request->produced++;
    event.message = event.error_json = "";
    const std::vector<int32_t> top_ids(request->params.n_logprobs, request->last);
    const std::vector<float> top(request->params.n_logprobs, logprob);
    if (request->params.n_logprobs > 0) {
      event.logprobs = &logprob;
      event.top_ids = top_ids.data();
      event.top_logprobs = top.data();
      event.n_top = top.size();
    }
    if (request->callback(request->user, &event) != 0) request->cancelled = true;
    if (request->cancelled || request->produced < request->params.max_new_tokens) return;
    drop(request, &dsv_stats::requests_done);
    end(request, DSV_FIN_LENGTH, DSV_OK, "");
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!stop || !active.empty() || !queue.empty()) {
      if (active.empty() && queue.empty()) {
        changed.wait(lock, [&] { return stop || !queue.empty(); });
        continue;
      }
      if (stop)
        for (const auto* all : {&active, &queue})
          for (const Request& request : *all) request->cancelled = true;
      admit();
      std::vector<Request> all = active, batch;
      all.insert(all.end(), queue.begin(), queue.end());
      const bool waits = !facts.gate.empty() && !std::filesystem::exists(facts.gate);
      for (const Request& request : active)
        if (!waits || request->produced == 0) batch.push_back(request);
      if (!batch.empty()) {
        ++stats.steps;
        stats.step_rows += batch.size();
        stats.step_requests += batch.size();
        stats.tokens_out += batch.size();
      }
      broken = broken || (facts.fail_at_step > 0 && stats.steps >= facts.fail_at_step);
      const bool failed = broken;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(batch.empty() ? 1000 : facts.step_us));
      if (!failed)
        for (const Request& request : batch) step(request);
      sweep(all, failed);
      lock.lock();
    }
  }

  dsv_status* queue_request(const Request& request) {
    misbehave();
    std::lock_guard lock(mutex);
    const auto refuse = [&](dsv_status* status) { return ++stats.requests_refused, status; };
    if (broken) return refuse(error(DSV_E_DEVICE, "engine", "a failed step", "an engine that serves"));
    if (queue.size() >= facts.max_queue)
      return refuse(error(DSV_E_QUEUE_FULL, "queue", std::to_string(queue.size()) + " requests", "room for one"));
    if (pages_of(*request) > facts.kv_pages)
      return refuse(error(DSV_E_KV_EXHAUSTED, "pages", std::to_string(pages_of(*request)), "at most all"));
    stats.tokens_in += request->tokens.size();
    queue.push_back(request);
    count();
    changed.notify_all();
    return nullptr;
  }

  const Facts facts;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Request> active, queue;
  dsv_stats stats;
  bool stop = false, broken = false;
  volatile int unguarded = 0;
  std::thread worker;
};

namespace {

dsv_status* open_artifact(const char* path, const dsv_open_options*, dsv_artifact** out) {
  std::ifstream file(std::string(path) + "/fake.json");
  if (!file) return error(DSV_E_NOT_FOUND, std::string(path) + "/fake.json", "no such file", "an artifact");
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) return error(DSV_E_CORRUPT_ARTIFACT, std::string(path) + "/fake.json", "no JSON", "an object");
  auto artifact = std::make_unique<dsv_artifact>();
  Facts& facts = artifact->facts;
  facts.vocab = json.value("vocab", facts.vocab);
  facts.max_batch = json.value("max_batch", facts.max_batch);
  facts.max_queue = json.value("max_queue", facts.max_queue);
  facts.kv_pages = json.value("kv_pages", facts.kv_pages);
  facts.step_us = json.value("step_us", facts.step_us);
  facts.fail_at_step = json.value("fail_at_step", facts.fail_at_step);
  facts.gate = json.value("gate", facts.gate);
  facts.fault = json.value("fault", facts.fault);
  *out = artifact.release();
  return nullptr;
}

dsv_status* create_engine(dsv_artifact* artifact, const dsv_engine_options* options, dsv_engine** out) {
  Facts facts = artifact->facts;
  const auto narrow = [](const char* name, auto& limit, auto wanted) -> dsv_status* {
    if (wanted > limit) return invalid(name, std::to_string(wanted), "at most " + std::to_string(limit));
    if (wanted > 0) limit = wanted;
    return nullptr;
  };
  if (auto* status = narrow("max_batch", facts.max_batch, options->max_batch)) return status;
  if (auto* status = narrow("kv_pages", facts.kv_pages, options->kv_pages)) return status;
  if (auto* status = narrow("max_context", facts.max_context, options->max_context)) return status;
  if (options->max_queue > 0) facts.max_queue = options->max_queue;
  *out = new dsv_engine(facts);
  return nullptr;
}

dsv_status* check_params(const dsv_generate_params& p, const Facts& facts) {
  const auto number = [](auto value) { return std::to_string(value); };
  if (p.n_tokens == 0) return invalid("prompt", "no token", "at least one");
  if (p.n_tokens >= facts.max_context) return invalid("prompt", number(p.n_tokens), "less than the context");
  for (size_t i = 0; i < p.n_tokens; ++i)
    if (p.tokens[i] < 0 || p.tokens[i] >= static_cast<int32_t>(facts.vocab))
      return invalid("tokens[" + number(i) + "]", number(p.tokens[i]), "an id below " + number(facts.vocab));
  if (p.max_new_tokens == 0) return invalid("max_new_tokens", "0", "at least 1");
  if (!(p.top_p > 0.0 && p.top_p <= 1.0)) return invalid("top_p", number(p.top_p), "a number in (0, 1]");
  if (!(p.temperature >= 0.0)) return invalid("temperature", number(p.temperature), "a number from 0 on");
  if (p.n_logprobs > 20) return invalid("n_logprobs", number(p.n_logprobs), "at most 20");
  return nullptr;
}

dsv_status* generate(dsv_engine* engine, const dsv_generate_params* params, dsv_event_fn callback, void* user,
                     dsv_request** out) {
  if (dsv_status* status = check_params(*params, engine->facts)) {
    std::lock_guard lock(engine->mutex);
    ++engine->stats.requests_refused;
    return status;
  }
  auto request = std::make_shared<dsv_request>();
  request->tokens.assign(params->tokens, params->tokens + params->n_tokens);
  request->params = *params;
  request->callback = callback;
  request->user = user;
  request->last = request->tokens.back();
  if (params->deadline_ms > 0) request->until = Clock::now() + std::chrono::milliseconds(params->deadline_ms);
  request->self = request;
  *out = request.get();
  dsv_status* refused = engine->queue_request(request);
  if (refused != nullptr) request->self.reset();
  return refused;
}

dsv_status* engine_stats(dsv_engine* engine, dsv_stats* stats) {
  std::lock_guard lock(engine->mutex);
  *stats = engine->stats;
  return nullptr;
}

dsv_status* engine_ready(dsv_engine* engine) {
  std::lock_guard lock(engine->mutex);
  return engine->broken ? error(DSV_E_DEVICE, "engine", "a failed step", "an engine that serves") : nullptr;
}

dsv_api make_table() {
  dsv_api api;
  DSV_INIT(&api);
  api.abi_major = DSV_ABI_MAJOR;
  api.abi_minor = DSV_ABI_MINOR;
  api.version = "fake";
  api.status_code = [](const dsv_status* status) { return status ? status->code : DSV_OK; };
  api.status_message = [](const dsv_status* status) { return status->message.c_str(); };
  api.status_json = [](const dsv_status* status) { return status->json.c_str(); };
  api.status_free = [](dsv_status* status) { delete status; };
  api.artifact_open = open_artifact;
  api.artifact_close = [](dsv_artifact* artifact) { delete artifact; };
  api.engine_create = create_engine;
  api.engine_ready = engine_ready;
  api.engine_stats = engine_stats;
  api.engine_close = [](dsv_engine* engine, uint64_t) -> dsv_status* { return delete engine, nullptr; };
  api.generate = generate;
  api.request_cancel = [](dsv_request* request) -> dsv_status* { return request->cancelled = true, nullptr; };
  api.request_free = [](dsv_request* request) {
    const Request last = std::move(request->self);
    if (last != nullptr) last->cancelled = true;  // of no consequence where it has ended
  };
  return api;
}

}  // namespace

DSV_EXPORT const dsv_api* dsv41c_get_api_v1(uint32_t major, uint32_t minor, uint32_t* library_major,
                                            uint32_t* library_minor) {
  static const dsv_api table = make_table();
  if (library_major != nullptr) *library_major = DSV_ABI_MAJOR;
  if (library_minor != nullptr) *library_minor = DSV_ABI_MINOR;
  return major == DSV_ABI_MAJOR && minor <= DSV_ABI_MINOR ? &table : nullptr;
}
