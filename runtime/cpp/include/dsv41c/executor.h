/* The executor: opens an artifact and runs steps on it. Internal interface, used by the Python binding.
 *
 * Nothing throws across it. A function that can fail returns 0, or 1 with `error` holding a JSON object
 * {"code","subject","where","found","needed","do"}. One executor must not be used by two threads at once.
 */
#ifndef DSV41C_EXECUTOR_H
#define DSV41C_EXECUTOR_H

#include <stdint.h>

#include "dsv41c/provider.h"

#define DSV41C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dsv41c_executor dsv41c_executor;

typedef struct dsv41c_load_options {
  int32_t verify_full;   /* 0: sizes of all files, digests of those the executor parses; 1: digest of every file */
  int32_t num_providers; /* beside the built-in cpu provider */
  const dsv41c_provider* const* providers;
  int32_t poison;          /* 0: off; 1..255: debug, the arena is filled with this byte before every method */
  int32_t device;          /* CUDA targets: index of the device */
  int32_t cuda_mode;       /* 0: executable graphs; 1: debug, launches one by one */
  int32_t reserved;        /* 0 */
  const char* cuda_driver; /* null: libcuda.so.1 */
  const char* weights;     /* checkpoint directory, for an artifact that maps its weights; null for others */
  int64_t memory_budget;   /* bytes that all but the weights may take; 0: no limit. Checked before any is reserved */
  const char* check; /* "off", "full" or "full:SEED": debug, every launch on the CPU is checked and launches run in
                        an order drawn from the seed; null: what DSV41C_CHECK in the environment says, else off */
} dsv41c_load_options;

/* Lists of rows: keep_rows index rows of the upload, logit_rows index the kept rows; both strictly ascending.
 * keep_rows are all rows of the upload unless the plan has window floors (--suffix-mode mask or compact). */
typedef struct dsv41c_step_inputs {
  const int32_t* upload; /* [num_rows, 5]: SLOT OFFSET TOKEN FLAGS PAGE */
  int64_t num_rows;
  const int32_t* keep_rows;
  int64_t num_keep;
  const int32_t* logit_rows;
  int64_t num_logit_rows;
  int32_t eager;    /* 1: bind at the exact size even where a bucket fits */
  int32_t reserved; /* 0 */
} dsv41c_step_inputs;

/* A prefix hit: what a slot continues behind. The pages hold the entries of the positions below prefix_length; slots
 * may share those that the prefix fills. One that it ends inside is the slot's own copy, which the caller has made. */
typedef struct dsv41c_resume_inputs {
  int32_t slot;
  int32_t reserved;      /* 0 */
  int64_t prefix_length; /* even */
  const int32_t*
      tokens; /* the last ids in front of the first replayed row, as many as a row looks back at; -1: image */
  int64_t num_tokens;
  const int32_t* pages; /* in order */
  int64_t num_pages;
} dsv41c_resume_inputs;

/* One method run of one step. */
typedef struct dsv41c_record {
  char method[32];
  int32_t bucket; /* rows that were launched */
  int32_t rows;   /* rows that were asked for */
  int32_t pad_rows;
  int32_t eager;
  char reason[64];
  double us;
  int64_t step;    /* from 0 since load; drafts count for the step that verifies them */
  double begin_us; /* since loading began */
} dsv41c_record;

DSV41C_API const dsv41c_provider* dsv41c_cpu_provider(void);

DSV41C_API int32_t dsv41c_open(const char* path, const dsv41c_load_options* options, dsv41c_executor** executor,
                               dsv41c_error* error);
DSV41C_API void dsv41c_close(dsv41c_executor* executor);

/* Checks all inputs before it touches state. On a CUDA target it returns once the work is on the device's stream, under
 * checks once it is in a queue; the inputs may then be changed. A failure may be that of an earlier step. */
DSV41C_API int32_t dsv41c_step(dsv41c_executor* executor, const dsv41c_step_inputs* inputs, dsv41c_error* error);

/* Places a slot behind a prefix hit, in order with the steps, without waiting for them. The rows of the last window of
 * the prefix then run again: the first one carries HIT (32), all below prefix_length REPLAY (16), and store nothing
 * that the pages hold. Checks all inputs before it touches state. */
DSV41C_API int32_t dsv41c_resume(dsv41c_executor* executor, const dsv41c_resume_inputs* inputs, dsv41c_error* error);

/* Drafts behind the newest token of each slot, which no step holds yet: upload [num_groups, 5] with SLOT, TOKEN (-1:
 * the one that the slot's last step chose) and OFFSET 0, FLAGS 0, PAGE -1. The outputs draft_tokens and confidence
 * replace those of the last step. Changes no state; in order with the steps, and returns as a step does. */
DSV41C_API int32_t dsv41c_draft(dsv41c_executor* executor, const int32_t* upload, int64_t num_groups, int32_t eager,
                                dsv41c_error* error);

/* Slots forget their positions from lengths[i] on, in order with the steps and without waiting. At most --draft-len + 1
 * of all that a slot has held since it started, or since the host wrote its position; beyond it nothing is changed. */
DSV41C_API int32_t dsv41c_rollback(dsv41c_executor* executor, const int32_t* slots, const int32_t* lengths,
                                   int64_t count, dsv41c_error* error);

/* Waits for the steps before it. */
DSV41C_API int32_t dsv41c_synchronize(dsv41c_executor* executor, dsv41c_error* error);

/* An output of the last step (its requested rows), and a state tensor. On the CPU they are the executor's memory; on
 * CUDA a copy, made after the last step has run and valid until the next call for the same name or the next step. */
DSV41C_API int32_t dsv41c_output(dsv41c_executor* executor, const char* name, dsv41c_tensor* tensor,
                                 dsv41c_error* error);
DSV41C_API int32_t dsv41c_state(dsv41c_executor* executor, const char* name, dsv41c_tensor* tensor,
                                dsv41c_error* error);

/* Overwrites a whole state tensor after the last step has run: for tests. With slot_position, slots count as placed:
 * nothing is known to have been written beyond, and dsv41c_rollback goes back from there. */
DSV41C_API int32_t dsv41c_state_write(dsv41c_executor* executor, const char* name, const void* data, int64_t bytes,
                                      dsv41c_error* error);

/* Load report as JSON, owned by the executor. */
DSV41C_API const char* dsv41c_report(dsv41c_executor* executor);

/* Records are numbered from 0 since load; the newest 65,536 are kept. */
DSV41C_API int64_t dsv41c_num_records(dsv41c_executor* executor);
DSV41C_API int32_t dsv41c_record_at(dsv41c_executor* executor, int64_t index, dsv41c_record* record,
                                    dsv41c_error* error);

/* Internal, for tools/bench: JSON owned by the executor until the next bench. graph_bench builds the graphs of all
 * buckets again, once node by node, once by stream capture and once cut into pieces, and replays them; state starts
 * afresh after it. step_bench runs one step `steps` times, so its rows should start their slots, and reports the time
 * from call to return. */
DSV41C_API int32_t dsv41c_graph_bench(dsv41c_executor* executor, int32_t replays, const char** json,
                                      dsv41c_error* error);
DSV41C_API int32_t dsv41c_step_bench(dsv41c_executor* executor, const dsv41c_step_inputs* inputs, int32_t steps,
                                     const char** json, dsv41c_error* error);

/* Internal, for tests: the inputs of the last step, which its launches read when they run; null without checks. */
DSV41C_API void* dsv41c_staged_inputs(dsv41c_executor* executor, int64_t* bytes);

/* Heap allocations made by this library since the process started. */
DSV41C_API int64_t dsv41c_heap_allocations(void);

#ifdef __cplusplus
}
#endif
#endif
