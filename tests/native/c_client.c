/* Runs a batch of requests through the C interface: one request a line on stdin, one answer a line on stdout.
 *
 *   c_client ARTIFACT [KV_PAGES]
 *
 * A request is "max_new min_new temperature top_p top_k seed n_logprobs flags priority stop_ids prompt", numbers as C
 * reads them and ids with commas ("-" for none). An answer is "finish code preemptions ids logprobs top", the last two
 * as the bits of floats in hex, "-" where there is nothing. All requests start together.
 */
#include <dsv41c/dsv41c.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_REQUESTS = 256, MAX_IDS = 8192, MAX_LINE = 65536 };

typedef struct answer {
  uint32_t finish, preemptions;
  dsv_code code;
  size_t n_tokens, n_top;
  int32_t tokens[MAX_IDS], *top_ids;
  float logprobs[MAX_IDS], *top_logprobs;
  int endings, with_logprobs;
} answer;

static const dsv_api* api;

static int32_t on_event(void* user, const dsv_event* event) {
  answer* a = user;
  size_t i, top = event->n_top;
  if (event->kind != DSV_EV_TOKENS) {
    a->finish = event->finish;
    a->code = event->code;
    a->preemptions = event->preemptions;
    ++a->endings;
    return 0;
  }
  if (event->first_index != a->n_tokens || a->n_tokens + event->n_tokens > MAX_IDS) abort();
  a->with_logprobs = event->logprobs != NULL;
  a->n_top = top;
  if (top && !a->top_ids) {
    a->top_ids = calloc(MAX_IDS * top, sizeof *a->top_ids);
    a->top_logprobs = calloc(MAX_IDS * top, sizeof *a->top_logprobs);
  }
  for (i = 0; i < event->n_tokens; ++i) {
    a->tokens[a->n_tokens + i] = event->tokens[i];
    if (event->logprobs) a->logprobs[a->n_tokens + i] = event->logprobs[i];
  }
  for (i = 0; event->logprobs && i < event->n_tokens * top; ++i) {
    a->top_ids[a->n_tokens * top + i] = event->top_ids[i];
    a->top_logprobs[a->n_tokens * top + i] = event->top_logprobs[i];
  }
  a->n_tokens += event->n_tokens;
  return 0;
}

static void check(dsv_status* status) {
  if (!status) return;
  fprintf(stderr, "%s\n", api->status_json(status));
  api->status_free(status);
  exit(1);
}

static size_t read_ids(const char* text, int32_t* ids) {
  size_t count = 0;
  char* end;
  if (*text == '-' && !text[1]) return 0;
  for (;; text = end + 1) {
    ids[count++] = (int32_t)strtol(text, &end, 10);
    if (*end != ',') return count;
  }
}

static void submit(dsv_engine* engine, const char* line, answer* a, dsv_request** request) {
  static char stops[MAX_LINE], prompt[MAX_LINE];
  static int32_t stop_ids[MAX_IDS], ids[MAX_IDS];
  dsv_generate_params params;
  dsv_generate_params_init(&params);
  if (sscanf(line, "%" SCNu32 " %" SCNu32 " %lf %lf %" SCNd32 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %s %s",
             &params.max_new_tokens, &params.min_new_tokens, &params.temperature, &params.top_p, &params.top_k,
             &params.seed, &params.n_logprobs, &params.flags, &params.priority, stops, prompt) != 11)
    exit(2);
  params.stop_ids = stop_ids;
  params.n_stop_ids = read_ids(stops, stop_ids);
  params.tokens = ids;
  params.n_tokens = read_ids(prompt, ids);
  check(api->generate(engine, &params, on_event, a, request));
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static void print_answer(const answer* a) {
  size_t i;
  if (a->endings != 1) abort();
  printf("%" PRIu32 " %" PRId32 " %" PRIu32 " ", a->finish, a->code, a->preemptions);
  for (i = 0; i < a->n_tokens; ++i) printf("%s%" PRId32, i ? "," : "", a->tokens[i]);
  printf(a->n_tokens ? " " : "- ");
  for (i = 0; a->with_logprobs && i < a->n_tokens; ++i) printf("%s%08" PRIx32, i ? "," : "", bits_of(a->logprobs[i]));
  printf(a->with_logprobs ? " " : "- ");
  for (i = 0; i < a->n_tokens * a->n_top; ++i)
    printf("%s%" PRId32 ":%08" PRIx32, i ? "," : "", a->top_ids[i], bits_of(a->top_logprobs[i]));
  puts(a->n_tokens && a->n_top ? "" : "-");
}

int main(int argc, char** argv) {
  static dsv_request* requests[MAX_REQUESTS];
  static char line[2 * MAX_LINE];
  answer* answers = calloc(MAX_REQUESTS, sizeof *answers);
  size_t count = 0, i;
  dsv_artifact* artifact;
  dsv_engine* engine;
  dsv_engine_options options;
  if (argc < 2 || !answers) return 2;
  api = dsv41c_get_api_v1(DSV_ABI_MAJOR, DSV_ABI_MINOR, NULL, NULL);
  if (!api) return 2;
  DSV_INIT(&options);
  options.flags = DSV_ENGINE_PAUSED;
  if (argc > 2) options.kv_pages = strtoull(argv[2], NULL, 10);
  check(api->artifact_open(argv[1], NULL, &artifact));
  check(api->engine_create(artifact, &options, &engine));
  for (; count < MAX_REQUESTS && fgets(line, sizeof line, stdin); ++count)
    submit(engine, line, &answers[count], &requests[count]);
  check(api->engine_pause(engine, 0));
  for (i = 0; i < count; ++i) check(api->request_wait(requests[i], UINT64_MAX));
  for (i = 0; i < count; ++i) {
    api->request_free(requests[i]);
    print_answer(&answers[i]);
    free(answers[i].top_ids);
    free(answers[i].top_logprobs);
  }
  free(answers);
  check(api->engine_close(engine, 1000));
  api->artifact_close(artifact);
  return 0;
}
