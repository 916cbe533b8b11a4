/* dsv41c.h: the stable C interface of the dsv41c runtime. Valid C11 and C++17.
 *
 * RULES
 *  R1  Handles are opaque; only the library creates and destroys them. A null handle is DSV_E_INVALID_ARG; destroying
 *      null does nothing. A destroyed handle must not be used again.
 *  R2  A call that can fail returns a dsv_status*: null for success, else an object that the caller frees with
 *      status_free. There is no "last error".
 *  R3  Neither an exception nor a longjmp crosses the interface, in either direction, callbacks included.
 *  R4  A struct passed by pointer starts with struct_size, set by the caller (DSV_INIT, dsv_generate_params_init). The
 *      library reads no byte beyond it, and what a shorter struct lacks takes its default, which is zero. Bytes that
 * the library does not know must be zero, else DSV_E_UNSUPPORTED: a newer caller asked for something. Reserved fields
 *      must be zero. Structs that the library fills are never written beyond struct_size. A struct_size below that of
 *      the field itself or above 4096 is DSV_E_INVALID_ARG.
 *  R5  Strings and arrays in are copied before the call returns; strings are UTF-8 and end with a zero. Strings out are
 *      borrowed and live as long as the handle that they were asked of, or are a dsv_buffer, freed with buffer_free.
 *      The library frees no memory of the caller's, and the caller none of the library's.
 *  R6  Tensors are DLPack's DLManagedTensorVersioned of major version 1. Those in are borrowed for the call. Those out
 *      are new, on the CPU, and belong to the caller, who calls their deleter; they outlive every handle.
 *  R7  Threads: an artifact does not change and may be used by any thread. An engine may be used by any thread. A
 * session serves one thread at a time, a second one gets DSV_E_BUSY. A request may be cancelled, waited for and freed
 * by any thread. R8  Callbacks run on threads of the library, for one request one at a time, in the order of tokens.
 * Every request that was accepted gets exactly one terminal event, the last one: after a cancel, an error, a close and
 * request_free too. A callback may take its time: it holds up neither the engine nor the events of other requests, and
 * tokens that come meanwhile arrive together in one later event. It must not call engine_close or request_wait
 *      (DSV_E_DEADLOCK). What an event points to is borrowed until the callback returns. Non-zero cancels the request.
 *  R9  Close in the order requests, sessions, engine, artifact. Another order neither crashes nor leaks: children keep
 *      alive what they need. engine_close cancels, waits up to its time limit for callbacks, and returns; the handle is
 *      gone in every case. The library is never unloaded.
 *  R10 The table only grows at its end; slots never move and never change their meaning. Structs grow at their ends.
 */
#ifndef DSV41C_H
#define DSV41C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define DSV_EXPORT __attribute__((visibility("default")))
#else
#define DSV_EXPORT
#endif
#ifdef __cplusplus
extern "C" {
#endif

#define DSV_ABI_MAJOR 1u /* changes with a break: another entry, another soname */
#define DSV_ABI_MINOR 0u /* grows with slots, fields and values that are added */

struct DLManagedTensorVersioned; /* of dlpack.h, version 1.0 or newer */

typedef struct dsv_status dsv_status;
typedef struct dsv_buffer dsv_buffer;     /* bytes of the library's, as JSON */
typedef struct dsv_artifact dsv_artifact; /* a directory that was opened and verified; nothing runs */
typedef struct dsv_engine dsv_engine;     /* weights, state, scheduler */
typedef struct dsv_request dsv_request;   /* one generation */
typedef struct dsv_session dsv_session;   /* steps of one sequence, one by one */

typedef int32_t dsv_code;
enum {
  DSV_OK = 0,
  DSV_E_INVALID_ARG = 1,
  DSV_E_NOT_FOUND = 2,
  DSV_E_CORRUPT_ARTIFACT = 3,
  DSV_E_VERSION_MISMATCH = 4,
  DSV_E_UNSUPPORTED = 5,
  DSV_E_OUT_OF_MEMORY = 6,
  DSV_E_KV_EXHAUSTED = 7, /* pages or slots: at once when they can never suffice */
  DSV_E_QUEUE_FULL = 8,
  DSV_E_CANCELLED = 9,
  DSV_E_DEADLINE = 10, /* of a request, or the time limit of a wait or close */
  DSV_E_BUSY = 11,
  DSV_E_DEVICE = 12, /* a step failed: the engine serves no more */
  DSV_E_DEADLOCK = 13,
  DSV_E_CLOSED = 14,
  DSV_E_NOT_FINITE = 15, /* a logit of this request is NaN or infinite */
  DSV_E_INTERNAL = 16
};

#define DSV_INIT(p) (memset((p), 0, sizeof *(p)), (p)->struct_size = sizeof *(p))

typedef struct dsv_open_options {
  size_t struct_size;
  uint32_t verify; /* 0: sizes of all files, digests of those that are parsed; 1: digests of all files */
  uint32_t reserved;
  const char* weights; /* checkpoint directory of an artifact that leaves its weights there; null for others */
} dsv_open_options;

typedef struct dsv_artifact_info {
  size_t struct_size;
  const char* model;    /* "model_type" of config.json; "" where it has none */
  const char* digest;   /* SHA-256 of the plan */
  const char* compiler; /* "dsv41c 0.1" */
  const char* target;   /* "cpu", "sm_90a", ... */
  uint32_t n_ports;
  uint32_t n_segments;
  uint32_t vocab;
  uint32_t max_batch;        /* slots: requests that run at the same time */
  uint32_t max_batch_tokens; /* rows of a step */
  uint32_t reserved;
  uint64_t max_context; /* tokens of a request, prompt and answer */
  uint64_t block_size;  /* tokens of a page */
  uint64_t kv_pages;
  uint64_t weight_bytes;
  uint64_t planned_bytes; /* all but the weights */
  const int32_t* eos_ids;
  size_t n_eos_ids;
} dsv_artifact_info;

enum { DSV_PORT_IN = 0, DSV_PORT_OUT = 1, DSV_PORT_STATE = 2 };
/* Of session_run (in and out), and the state that steps keep. dims: -1 is a size that the caller chooses. */
typedef struct dsv_port {
  size_t struct_size;
  const char* name;
  int32_t dl_code, dl_bits, dl_lanes; /* DLDataType */
  int32_t ndim;
  const int64_t* dims;
  const char* const* dim_names; /* "" where a size has no name */
  uint32_t direction;           /* DSV_PORT_* */
  uint32_t reserved;
} dsv_port;

enum { DSV_LOG_ERROR = 0, DSV_LOG_WARNING = 1, DSV_LOG_INFO = 2 };
typedef void (*dsv_log_fn)(void* user, int32_t level, const char* message, size_t length);

enum { DSV_ENGINE_PAUSED = 1 }; /* as after engine_pause */
typedef struct dsv_engine_options {
  size_t struct_size;
  uint32_t flags;
  int32_t device_id;         /* of an artifact for a GPU; 0 for the CPU */
  uint64_t memory_budget;    /* bytes beside the weights; a plan that takes more is refused. 0: no limit */
  uint64_t kv_pages;         /* use no more of the plan's pages. 0: all */
  uint64_t max_context;      /* 0, or at most the artifact's */
  uint32_t max_batch;        /* 0, or at most the artifact's */
  uint32_t max_batch_tokens; /* 0, or at most the artifact's, at least max_batch */
  uint32_t max_queue;        /* requests that wait for a slot. 0: 1024 */
  uint32_t reserved;
  dsv_log_fn log; /* may be null; one call at a time, on any thread; must not call the engine */
  void* log_user;
} dsv_engine_options;

/* The limits in force. */
typedef struct dsv_engine_info {
  size_t struct_size;
  uint32_t max_batch, max_batch_tokens, max_queue, vocab;
  uint64_t max_context, block_size, kv_pages;
} dsv_engine_info;

typedef struct dsv_stats {
  size_t struct_size;
  uint64_t requests_active, requests_queued; /* now */
  uint64_t requests_done;                    /* ended by themselves */
  uint64_t requests_cancelled;               /* deadlines included */
  uint64_t requests_failed;                  /* ended with an error */
  uint64_t requests_refused;                 /* never accepted */
  uint64_t tokens_in, tokens_out;            /* prompts of accepted requests, answers that ended */
  uint64_t kv_pages_total, kv_pages_used;    /* sessions included */
  uint64_t slots_total, slots_used;          /* sessions included */
  uint64_t steps, step_rows, step_requests;  /* sums over steps: rows / steps and requests / steps are occupancies */
  uint64_t preemptions;                      /* requests that gave up their pages and are computed again */
  uint64_t planned_bytes, weight_bytes;
} dsv_stats;

enum { DSV_GEN_IGNORE_EOS = 1 };
/* Defaults by dsv_generate_params_init. Tokens depend on the artifact and these fields alone, never on other requests.
 */
typedef struct dsv_generate_params {
  size_t struct_size;
  const int32_t* tokens;   /* prompt: at least one id, all below the vocabulary */
  size_t n_tokens;         /* below max_context */
  uint32_t max_new_tokens; /* at least 1. The context's end also ends a request */
  uint32_t min_new_tokens; /* until then no id that would end the request is chosen */
  double temperature;      /* 0: greedy, ties go to the lower id */
  double top_p;            /* in (0, 1]: draw from the likeliest ids that hold this probability */
  int32_t top_k;           /* draw from so many likeliest ids, before top_p. 0: all */
  uint32_t n_logprobs;     /* 0: none; 1..20: those of the chosen and of so many likeliest ids */
  uint64_t seed;           /* a draw depends on seed and position */
  const int32_t* stop_ids; /* end the request, beside the artifact's end-of-sequence ids; at most 64 */
  size_t n_stop_ids;
  uint32_t flags;       /* DSV_GEN_* */
  uint32_t priority;    /* lower ones first; among equals the order of arrival */
  uint64_t deadline_ms; /* from the call on. 0: none */
  const char* id;       /* named in errors and log; at most 256 bytes, or null */
} dsv_generate_params;

static inline void dsv_generate_params_init(dsv_generate_params* params) {
  DSV_INIT(params);
  params->max_new_tokens = 16;
  params->top_p = 1.0;
}

enum { DSV_EV_TOKENS = 0, DSV_EV_DONE = 1, DSV_EV_ERROR = 2 }; /* the last two are terminal */
enum {
  DSV_FIN_NONE = 0,
  DSV_FIN_STOP = 1,   /* the last token is a stop or end-of-sequence id */
  DSV_FIN_LENGTH = 2, /* max_new_tokens, or the context is full */
  DSV_FIN_CANCEL = 3,
  DSV_FIN_ERROR = 4, /* with DSV_EV_ERROR only */
  DSV_FIN_DEADLINE = 5
};
/* Log-probabilities are those of the model, before temperature, top_k, top_p and min_new_tokens. */
typedef struct dsv_event {
  size_t struct_size;
  uint32_t kind;         /* DSV_EV_* */
  uint32_t finish;       /* DSV_FIN_*; terminal events */
  const int32_t* tokens; /* terminal events: null */
  size_t n_tokens;
  uint64_t first_index;      /* of tokens, in the answer; terminal events: tokens in all */
  const float* logprobs;     /* [n_tokens], or null */
  const int32_t* top_ids;    /* [n_tokens, n_top], likeliest first, or null */
  const float* top_logprobs; /* [n_tokens, n_top], or null */
  size_t n_top;
  dsv_code code; /* DSV_OK unless the request was cancelled, late or failed */
  uint32_t preemptions;
  const char* message;                      /* "" or one line */
  const char* error_json;                   /* "" or as status_json */
  uint64_t queue_ns, prefill_ns, decode_ns; /* terminal events: until the first step, until the first token, after it */
} dsv_event;
typedef int32_t (*dsv_event_fn)(void* user, const dsv_event* event);

typedef struct dsv_api {
  size_t struct_size;
  uint32_t abi_major, abi_minor;
  const char* version;

  dsv_code (*status_code)(const dsv_status* status);       /* null: DSV_OK */
  const char* (*status_message)(const dsv_status* status); /* one line, never null */
  /* {"code": "DSV41C-E0901", "subject", "where", "found", "needed", "do"}: see errors.md. Never null. */
  const char* (*status_json)(const dsv_status* status);
  void (*status_free)(dsv_status* status);

  const void* (*buffer_data)(const dsv_buffer* buffer, size_t* length); /* a zero byte follows the last one */
  void (*buffer_free)(dsv_buffer* buffer);

  /* Reads and verifies; no weight is read and no device touched. options may be null. */
  dsv_status* (*artifact_open)(const char* path, const dsv_open_options* options, dsv_artifact** out);
  dsv_status* (*artifact_info)(const dsv_artifact* artifact, dsv_artifact_info* info);
  dsv_status* (*artifact_port)(const dsv_artifact* artifact, uint32_t index, dsv_port* port);
  dsv_status* (*artifact_plan_json)(const dsv_artifact* artifact, dsv_buffer** out);
  void (*artifact_close)(dsv_artifact* artifact);

  /* Reserves, loads and starts to serve. options may be null. */
  dsv_status* (*engine_create)(dsv_artifact* artifact, const dsv_engine_options* options, dsv_engine** out);
  dsv_status* (*engine_info)(dsv_engine* engine, dsv_engine_info* info);
  dsv_status* (*engine_ready)(dsv_engine* engine); /* null while it serves, else the error that ended that */
  dsv_status* (*engine_stats)(dsv_engine* engine, dsv_stats* stats);
  dsv_status* (*engine_metrics)(dsv_engine* engine, dsv_buffer** out); /* Prometheus text format */
  /* 1: no step starts until it is called with 0; requests wait, cancels and deadlines work. */
  dsv_status* (*engine_pause)(dsv_engine* engine, int32_t paused);
  dsv_status* (*engine_close)(dsv_engine* engine, uint64_t timeout_ms);

  /* Queues a request. A request that is refused has no event and no handle. out may be null: nobody cancels or waits.
   */
  dsv_status* (*generate)(dsv_engine* engine, const dsv_generate_params* params, dsv_event_fn callback, void* user,
                          dsv_request** out);
  dsv_status* (*request_cancel)(dsv_request* request); /* as often as you like, also after the end */
  /* Until the callback of the terminal event has returned; DSV_E_DEADLINE after timeout_ms. */
  dsv_status* (*request_wait)(dsv_request* request, uint64_t timeout_ms);
  /* Cancels a request that has not ended, waits for nothing. user must stay valid until the terminal event. */
  void (*request_free)(dsv_request* request);

  /* Steps of one sequence, between those of the engine. Takes a slot and pages for max_tokens until it is freed. */
  dsv_status* (*session_create)(dsv_engine* engine, uint64_t max_tokens, dsv_session** out);
  /* Appends tokens; logits: null, or float32 [1, vocab] of the last one. With a bounded suffix the tokens of the first
   * call are the prompt. */
  dsv_status* (*session_prefill)(dsv_session* session, const int32_t* tokens, size_t n_tokens,
                                 struct DLManagedTensorVersioned** logits);
  dsv_status* (*session_decode)(dsv_session* session, int32_t token, struct DLManagedTensorVersioned** logits);
  /* Keeps the first n_tokens; the next step computes them again. */
  dsv_status* (*session_truncate)(dsv_session* session, uint64_t n_tokens);
  /* session_prefill with tensors by name, see artifact_port: "tokens" int32 [n] and optionally "rows" int32 [m],
   * ascending indices of tokens (the last one where absent), give "logits" float32 [m, vocab] and "choices" int32 [m].
   */
  dsv_status* (*session_run)(dsv_session* session, const char* const* in_names,
                             struct DLManagedTensorVersioned* const* in, size_t n_in, const char* const* out_names,
                             struct DLManagedTensorVersioned** out, size_t n_out);
  void (*session_free)(dsv_session* session);
} dsv_api;

/* The only symbol of the library. Null when `major` is another or `minor` is newer than the library's; the library's
 * numbers are written in every case, where the pointers are not null. */
DSV_EXPORT const dsv_api* dsv41c_get_api_v1(uint32_t major, uint32_t minor, uint32_t* library_major,
                                            uint32_t* library_minor);

#ifdef __cplusplus
}
#endif
#endif
