// The functions behind the table, as dsv41c.h describes them.
#pragma once

#include "dsv41c/dsv41c.h"

namespace dsv41c::capi {

const void* buffer_data(const dsv_buffer* buffer, size_t* length);
void buffer_free(dsv_buffer* buffer);

dsv_status* artifact_open(const char* path, const dsv_open_options* options, dsv_artifact** out);
dsv_status* artifact_info(const dsv_artifact* artifact, dsv_artifact_info* info);
dsv_status* artifact_port(const dsv_artifact* artifact, uint32_t index, dsv_port* port);
dsv_status* artifact_plan_json(const dsv_artifact* artifact, dsv_buffer** out);
void artifact_close(dsv_artifact* artifact);

dsv_status* engine_create(dsv_artifact* artifact, const dsv_engine_options* options, dsv_engine** out);
dsv_status* engine_info(dsv_engine* engine, dsv_engine_info* info);
dsv_status* engine_ready(dsv_engine* engine);
dsv_status* engine_stats(dsv_engine* engine, dsv_stats* stats);
dsv_status* engine_metrics(dsv_engine* engine, dsv_buffer** out);
dsv_status* engine_pause(dsv_engine* engine, int32_t paused);
dsv_status* engine_close(dsv_engine* engine, uint64_t timeout_ms);

dsv_status* generate(dsv_engine* engine, const dsv_generate_params* params, dsv_event_fn callback, void* user,
                     dsv_request** out);
dsv_status* request_cancel(dsv_request* request);
dsv_status* request_wait(dsv_request* request, uint64_t timeout_ms);
void request_free(dsv_request* request);

dsv_status* session_create(dsv_engine* engine, uint64_t max_tokens, dsv_session** out);
dsv_status* session_prefill(dsv_session* session, const int32_t* tokens, size_t n_tokens,
                            DLManagedTensorVersioned** logits);
dsv_status* session_decode(dsv_session* session, int32_t token, DLManagedTensorVersioned** logits);
dsv_status* session_truncate(dsv_session* session, uint64_t n_tokens);
dsv_status* session_run(dsv_session* session, const char* const* in_names, DLManagedTensorVersioned* const* in,
                        size_t n_in, const char* const* out_names, DLManagedTensorVersioned** out, size_t n_out);
void session_free(dsv_session* session);

}  // namespace dsv41c::capi
