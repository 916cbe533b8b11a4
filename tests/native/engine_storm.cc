// Eight threads on four engines, through the C interface, in builds with sanitizers: submits, cancels, waits, frees,
// sessions, slow and throwing callbacks, closes in any order. Every request that was accepted ends once, and pages and
// slots come back.
//
//   engine_storm ARTIFACT ROUNDS
#include <dsv41c/dsv41c.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

const dsv_api* api = nullptr;

constexpr int ENGINES = 4, THREADS = 8;

void need(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "storm: %s\n", what);
  std::abort();
}

dsv_code code_of(dsv_status* status) {
  const dsv_code code = api->status_code(status);
  need(api->status_message(status)[0] != '\0' || code == DSV_OK, "a status without a message");
  api->status_free(status);
  return code;
}

struct Consumer {
  std::atomic<int> endings{0};
  uint64_t told = 0;
  int behaviour = 0;
};

int32_t on_event(void* user, const dsv_event* event) {
  auto& consumer = *static_cast<Consumer*>(user);
  if (event->kind != DSV_EV_TOKENS) {
    need(event->first_index == consumer.told, "a count of tokens that is wrong");
    ++consumer.endings;
    return 0;
  }
  need(event->first_index == consumer.told && consumer.endings == 0, "events out of order");
  consumer.told += event->n_tokens;
  switch (consumer.behaviour) {
    case 1:
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      return 0;
    case 2:
      return 1;
    case 3:
      throw std::runtime_error("against the rules");
    default:
      return 0;
  }
}

bool may_refuse(dsv_code code) {
  return code == DSV_E_QUEUE_FULL || code == DSV_E_KV_EXHAUSTED || code == DSV_E_CLOSED;
}

class Client {
 public:
  Client(dsv_engine* engine, uint32_t seed) : engine_(engine), random_(seed) {}
  ~Client() {
    for (auto& consumer : consumers_)
      for (int i = 0; consumer->endings == 0; ++i) {
        need(i < 60'000, "a request that never ends");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    for (auto& consumer : consumers_) need(consumer->endings == 1, "a request that ended twice");
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void act() {
    switch (draw(6)) {
      case 0:
        return session();
      case 1:
        return look();
      default:
        return request();
    }
  }

 private:
  uint32_t draw(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  std::vector<int32_t> tokens(uint32_t most) {
    std::vector<int32_t> ids(1 + draw(most));
    for (int32_t& id : ids) id = static_cast<int32_t>(draw(96));
    return ids;
  }

  void request() {
    const auto prompt = tokens(90);
    dsv_generate_params params;
    dsv_generate_params_init(&params);
    params.tokens = prompt.data();
    params.n_tokens = prompt.size();
    params.max_new_tokens = 1 + draw(30);
    params.temperature = draw(2) ? 1.0 : 0.0;
    params.top_k = static_cast<int32_t>(draw(3));
    params.n_logprobs = draw(4);
    params.seed = draw(100);
    params.flags = DSV_GEN_IGNORE_EOS;
    params.priority = draw(3);
    params.deadline_ms = draw(8) == 0 ? 1 + draw(20) : 0;
    auto consumer = std::make_unique<Consumer>();
    consumer->behaviour = static_cast<int>(draw(8));
    dsv_request* handle = nullptr;
    const dsv_code code =
        code_of(api->generate(engine_, &params, on_event, consumer.get(), draw(5) ? &handle : nullptr));
    if (code != DSV_OK) return need(may_refuse(code), "an unexpected refusal");
    consumers_.push_back(std::move(consumer));
    if (!handle) return;
    if (draw(3) == 0) need(code_of(api->request_cancel(handle)) == DSV_OK, "a cancel that fails");
    if (draw(3) == 0) {
      const dsv_code waited = code_of(api->request_wait(handle, draw(2) ? 60'000 : 1));
      need(waited == DSV_OK || waited == DSV_E_DEADLINE, "a wait that fails");
    }
    api->request_free(handle);
  }

  void session() {
    dsv_session* handle = nullptr;
    const dsv_code code = code_of(api->session_create(engine_, 1 + draw(100), &handle));
    if (code != DSV_OK) return need(may_refuse(code), "an unexpected refusal of a session");
    const auto ids = tokens(40);
    const dsv_code ran = code_of(api->session_prefill(handle, ids.data(), ids.size(), nullptr));
    need(ran == DSV_OK || may_refuse(ran), "a session that fails");
    if (ran == DSV_OK)
      need(code_of(api->session_truncate(handle, draw(2))) != DSV_E_INTERNAL, "a truncation that fails");
    api->session_free(handle);
  }

  void look() {
    dsv_stats stats;
    DSV_INIT(&stats);
    need(code_of(api->engine_stats(engine_, &stats)) == DSV_OK, "no statistics");
    need(stats.kv_pages_used <= stats.kv_pages_total, "more pages than there are");
    dsv_buffer* text = nullptr;
    need(code_of(api->engine_metrics(engine_, &text)) == DSV_OK, "no metrics");
    size_t length = 0;
    need(api->buffer_data(text, &length) && length > 0, "empty metrics");
    api->buffer_free(text);
    static_cast<void>(code_of(api->engine_ready(engine_)));
  }

  dsv_engine* engine_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Consumer>> consumers_;
};

void await_nothing_held(dsv_engine* engine) {
  dsv_stats stats;
  DSV_INIT(&stats);
  for (int i = 0; i < 60'000; ++i) {
    need(code_of(api->engine_stats(engine, &stats)) == DSV_OK, "no statistics");
    if (stats.kv_pages_used + stats.slots_used + stats.requests_active + stats.requests_queued == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  need(false, "pages or slots that do not come back");
}

void storm(const char* path, int rounds) {
  dsv_artifact* artifact = nullptr;
  need(code_of(api->artifact_open(path, nullptr, &artifact)) == DSV_OK, "the artifact does not open");
  dsv_engine* engines[ENGINES] = {};
  for (int e = 0; e < ENGINES; ++e) {
    dsv_engine_options options;
    DSV_INIT(&options);
    options.kv_pages = static_cast<uint64_t>(8 + 8 * e);
    options.max_batch = static_cast<uint32_t>(2 + e);
    options.max_queue = 6;
    need(code_of(api->engine_create(artifact, &options, &engines[e])) == DSV_OK, "an engine is not made");
  }
  api->artifact_close(artifact);
  std::vector<std::thread> threads;
  for (int t = 0; t < THREADS; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::unique_ptr<Client>> clients;
      for (int e = 0; e < ENGINES; ++e)
        clients.push_back(std::make_unique<Client>(engines[e], static_cast<uint32_t>(1000 * t + e)));
      for (int i = 0; i < rounds; ++i) clients[static_cast<size_t>((i + t) % ENGINES)]->act();
    });
  for (std::thread& thread : threads) thread.join();
  for (dsv_engine* engine : engines) await_nothing_held(engine);
  for (dsv_engine* engine : engines) need(code_of(api->engine_close(engine, 60'000)) == DSV_OK, "a close that fails");
}

// Closes while requests run and wait, before their handles and sessions are freed.
void close_early(const char* path) {
  dsv_artifact* artifact = nullptr;
  dsv_engine* engine = nullptr;
  need(code_of(api->artifact_open(path, nullptr, &artifact)) == DSV_OK, "the artifact does not open");
  need(code_of(api->engine_create(artifact, nullptr, &engine)) == DSV_OK, "an engine is not made");
  api->artifact_close(artifact);
  std::vector<std::unique_ptr<Consumer>> consumers;
  std::vector<dsv_request*> requests(40);
  const int32_t prompt[] = {1, 2, 3};
  for (dsv_request*& request : requests) {
    consumers.push_back(std::make_unique<Consumer>());
    dsv_generate_params params;
    dsv_generate_params_init(&params);
    params.tokens = prompt;
    params.n_tokens = 3;
    params.max_new_tokens = 100;
    need(code_of(api->generate(engine, &params, on_event, consumers.back().get(), &request)) == DSV_OK, "refused");
  }
  dsv_session* session = nullptr;
  need(code_of(api->session_create(engine, 10, &session)) != DSV_E_INTERNAL, "a session");
  need(code_of(api->engine_close(engine, 60'000)) == DSV_OK, "a close that fails");
  for (dsv_request* request : requests) api->request_free(request);
  for (auto& consumer : consumers) need(consumer->endings == 1, "an ending that is missing");
  if (session) need(code_of(api->session_decode(session, 1, nullptr)) == DSV_E_CLOSED, "a session of a closed engine");
  api->session_free(session);
}

}  // namespace

int main(int argc, char** argv) {
  api = dsv41c_get_api_v1(DSV_ABI_MAJOR, DSV_ABI_MINOR, nullptr, nullptr);
  need(api && argc == 3, "usage: engine_storm ARTIFACT ROUNDS");
  storm(argv[1], std::atoi(argv[2]));
  close_early(argv[1]);
  std::puts("calm");
}
