/* Streams the tokens of one request, without Python:
 *
 *   cc stream.c $(pkg-config --cflags --libs dsv41c) -o stream
 *   ./stream ARTIFACT 1,2,3 [MAX_NEW_TOKENS [TEMPERATURE [SEED]]]
 */
#include <dsv41c/dsv41c.h>
#include <stdio.h>
#include <stdlib.h>

static const dsv_api* api;

static int32_t on_event(void* user, const dsv_event* event) {
  size_t i;
  for (i = 0; i < event->n_tokens; ++i) printf("%d\n", (int)event->tokens[i]);
  fflush(stdout);
  if (event->kind == DSV_EV_TOKENS) return 0;
  *(uint32_t*)user = event->finish;
  if (event->code != DSV_OK) fprintf(stderr, "%s\n", event->message);
  return 0;
}

static void check(dsv_status* status) {
  if (!status) return;
  fprintf(stderr, "%s\n", api->status_message(status));
  api->status_free(status);
  exit(1);
}

static size_t read_ids(const char* text, int32_t* ids, size_t most) {
  size_t count = 0;
  char* end;
  for (; *text && count < most; text = *end ? end + 1 : end) {
    ids[count++] = (int32_t)strtol(text, &end, 10);
    if (end == text) break;
  }
  return count;
}

int main(int argc, char** argv) {
  static int32_t prompt[4096];
  dsv_generate_params params;
  dsv_artifact* artifact;
  dsv_engine* engine;
  dsv_request* request;
  uint32_t finish = DSV_FIN_NONE;
  if (argc < 3) return fprintf(stderr, "usage: %s ARTIFACT 1,2,3 [MAX_NEW_TOKENS [TEMPERATURE [SEED]]]\n", argv[0]), 2;
  api = dsv41c_get_api_v1(DSV_ABI_MAJOR, DSV_ABI_MINOR, NULL, NULL);
  if (!api) return fprintf(stderr, "the library is older than this program\n"), 2;

  check(api->artifact_open(argv[1], NULL, &artifact));
  check(api->engine_create(artifact, NULL, &engine));
  dsv_generate_params_init(&params);
  params.tokens = prompt;
  params.n_tokens = read_ids(argv[2], prompt, sizeof prompt / sizeof *prompt);
  if (argc > 3) params.max_new_tokens = (uint32_t)atoi(argv[3]);
  if (argc > 4) params.temperature = atof(argv[4]);
  if (argc > 5) params.seed = strtoull(argv[5], NULL, 10);
  check(api->generate(engine, &params, on_event, &finish, &request));
  check(api->request_wait(request, UINT64_MAX));
  api->request_free(request);
  check(api->engine_close(engine, 1000));
  api->artifact_close(artifact);
  return finish == DSV_FIN_STOP || finish == DSV_FIN_LENGTH ? 0 : 1;
}
