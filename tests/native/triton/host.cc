// The server's library in this process, without sockets: for sanitizers. `host REPOSITORY BACKENDS` loads the models
// "steady" and "dying" and asks, cancels, reloads. It ends with 0 when every request got exactly one final response.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server_abi.h"

namespace {

void check(TE error, const char* what) {
  if (error == nullptr) return;
  std::fprintf(stderr, "%s: %s\n", what, TRITONSERVER_ErrorMessage(error));
  std::exit(1);
}

TE allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t bytes, TRITONSERVER_MemoryType, int64_t, void*,
            void** buffer, void** buffer_user, TRITONSERVER_MemoryType* memory, int64_t* device) {
  *buffer = bytes > 0 ? std::malloc(bytes) : nullptr;
  *buffer_user = nullptr;
  *memory = TRITONSERVER_MEMORY_CPU;
  *device = 0;
  return nullptr;
}

TE free_buffer(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t, TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

// One request. It may be dropped when it is over: the last response has come and the server has let go of it.
struct Ask {
  std::vector<int64_t> ids;
  bool stream;
  TRITONSERVER_InferenceRequest* request = nullptr;
  std::atomic<int> finals = 0, errors = 0, responses = 0;
  std::atomic<bool> released = false;

  bool is_over() const { return finals > 0 && released; }
  void wait() const {
    while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

void on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) {
  auto* const ask = static_cast<Ask*>(user);
  if (response != nullptr) {
    ++ask->responses;
    if (TE error = TRITONSERVER_InferenceResponseError(response)) {
      ++ask->errors;
      TRITONSERVER_ErrorDelete(error);
    }
    check(TRITONSERVER_InferenceResponseDelete(response), "delete a response");
  }
  if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) ++ask->finals;
}

class Host {
 public:
  Host(const char* repository, const char* backends) {
    TRITONSERVER_ServerOptions* options = nullptr;
    check(TRITONSERVER_ServerOptionsNew(&options), "options");
    check(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository), "repository");
    check(TRITONSERVER_ServerOptionsSetBackendDirectory(options, backends), "backends");
    check(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT), "mode");
    check(TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false), "auto-complete");
    check(TRITONSERVER_ServerOptionsSetLogInfo(options, false), "log");
    check(TRITONSERVER_ServerNew(&server_, options), "server");
    check(TRITONSERVER_ServerOptionsDelete(options), "options");
    check(TRITONSERVER_ResponseAllocatorNew(&allocator_, allocate, free_buffer, nullptr), "allocator");
  }
  ~Host() {
    check(TRITONSERVER_ServerDelete(server_), "delete the server");
    check(TRITONSERVER_ResponseAllocatorDelete(allocator_), "allocator");
  }

  void load(const char* model) { check(TRITONSERVER_ServerLoadModel(server_, model), "load"); }
  void unload(const char* model) { check(TRITONSERVER_ServerUnloadModel(server_, model), "unload"); }

  void start(Ask& ask, const char* model, int64_t max_tokens, bool is_known) {
    const int64_t count = static_cast<int64_t>(ask.ids.size()), one = 1;
    check(TRITONSERVER_InferenceRequestNew(&ask.request, server_, model, -1), "request");
    check(TRITONSERVER_InferenceRequestAddInput(ask.request, "input_ids", TRITONSERVER_TYPE_INT64, &count, 1), "input");
    check(TRITONSERVER_InferenceRequestAppendInputData(ask.request, "input_ids", ask.ids.data(), 8 * ask.ids.size(),
                                                       TRITONSERVER_MEMORY_CPU, 0),
          "data");
    const auto boolean = static_cast<TRITONSERVER_DataType>(1);
    check(TRITONSERVER_InferenceRequestAddInput(ask.request, "stream", boolean, &one, 1), "input");
    check(
        TRITONSERVER_InferenceRequestAppendInputData(ask.request, "stream", &ask.stream, 1, TRITONSERVER_MEMORY_CPU, 0),
        "data");
    check(TRITONSERVER_InferenceRequestSetIntParameter(ask.request, is_known ? "max_tokens" : "max_token", max_tokens),
          "parameter");
    const auto release = [](TRITONSERVER_InferenceRequest*, uint32_t, void* user) {
      static_cast<Ask*>(user)->released = true;
    };
    check(TRITONSERVER_InferenceRequestSetReleaseCallback(ask.request, release, &ask), "release callback");
    check(TRITONSERVER_InferenceRequestSetResponseCallback(ask.request, allocator_, nullptr, on_response, &ask),
          "response callback");
    check(TRITONSERVER_ServerInferAsync(server_, ask.request, nullptr), "infer");
  }

  // Waits, and ends the process unless there was one final response.
  void finish(Ask& ask) {
    ask.wait();
    check(TRITONSERVER_InferenceRequestDelete(ask.request), "delete a request");
    if (ask.finals == 1) return;
    std::fprintf(stderr, "%d final responses\n", ask.finals.load());
    std::exit(1);
  }

 private:
  TRITONSERVER_Server* server_ = nullptr;
  TRITONSERVER_ResponseAllocator* allocator_ = nullptr;
};

// Good and bad requests, some of them cancelled at some time.
void ask_around(Host& host, unsigned seed, int count) {
  std::mt19937 random(seed);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int i = 0; i < count; ++i) {
    Ask ask{{1, 2, below(500)}, below(2) == 0};
    const int kind = below(8);
    host.start(ask, "steady", kind == 0 ? 0 : 1 + below(30), kind != 1);
    if (kind >= 5) {
      std::this_thread::sleep_for(std::chrono::microseconds(below(5000)));
      if (!ask.released) check(TRITONSERVER_InferenceRequestCancel(ask.request), "cancel");
    }
    host.finish(ask);
    if (kind < 2 && ask.errors != 1) std::exit((std::fputs("a bad request got no error\n", stderr), 1));
  }
}

void all_at_once(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

void unload_while_streaming(Host& host) {
  std::vector<Ask> asks(8);
  for (Ask& ask : asks) {
    ask.ids = {5};
    ask.stream = true;
    host.start(ask, "steady", 40, true);
  }
  host.unload("steady");
  for (Ask& ask : asks) {
    host.finish(ask);
    if (ask.errors > 0 || ask.responses < 41) std::exit((std::fputs("unload cut a stream\n", stderr), 1));
  }
}

void outlive_a_dying_engine(Host& host) {
  host.load("dying");
  all_at_once(4, [&](int) {
    Ask ask{{5}, true};
    host.start(ask, "dying", 1000, true);
    host.finish(ask);
    if (ask.errors != 1) std::exit((std::fputs("a dying engine gave no error\n", stderr), 1));
  });
  host.unload("dying");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Host host(argv[1], argv[2]);
  host.load("steady");
  all_at_once(8, [&](int i) { ask_around(host, static_cast<unsigned>(i), 30); });
  unload_while_streaming(host);
  for (int i = 0; i < 10; ++i) {
    host.load("steady");
    ask_around(host, 100u + static_cast<unsigned>(i), 3);
    host.unload("steady");
  }
  outlive_a_dying_engine(host);
  std::puts("every request ended once");
  return 0;
}
