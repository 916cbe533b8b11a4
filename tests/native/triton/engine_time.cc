// The time of requests on the engine alone: `engine_time LIBRARY ARTIFACT COUNT TOKENS` prints nanoseconds, one a line.
#include <dlfcn.h>
#include <dsv41c/dsv41c.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using GetApi = const dsv_api* (*)(uint32_t, uint32_t, uint32_t*, uint32_t*);

void check(const dsv_api* api, dsv_status* status) {
  if (status == nullptr) return;
  std::fprintf(stderr, "%s\n", api->status_message(status));
  std::exit(1);
}

int32_t ignore(void*, const dsv_event*) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  const auto get = library == nullptr ? nullptr : reinterpret_cast<GetApi>(dlsym(library, "dsv41c_get_api_v1"));
  const dsv_api* api = get == nullptr ? nullptr : get(DSV_ABI_MAJOR, DSV_ABI_MINOR, nullptr, nullptr);
  if (api == nullptr) return 3;
  dsv_artifact* artifact = nullptr;
  dsv_engine* engine = nullptr;
  check(api, api->artifact_open(argv[2], nullptr, &artifact));
  check(api, api->engine_create(artifact, nullptr, &engine));
  const int32_t prompt[] = {5, 6, 7};
  dsv_generate_params params;
  dsv_generate_params_init(&params);
  params.tokens = prompt;
  params.n_tokens = 3;
  params.max_new_tokens = static_cast<uint32_t>(std::atoi(argv[4]));
  params.flags = DSV_GEN_IGNORE_EOS;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    const auto start = std::chrono::steady_clock::now();
    dsv_request* request = nullptr;
    check(api, api->generate(engine, &params, ignore, nullptr, &request));
    check(api, api->request_wait(request, 60'000));
    const auto spent = std::chrono::steady_clock::now() - start;
    std::printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(spent).count()));
    api->request_free(request);
  }
  check(api, api->engine_close(engine, 10'000));
  api->artifact_close(artifact);
  return 0;
}
