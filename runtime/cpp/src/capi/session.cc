// dsv_session: tokens or named tensors in, tensors out.
#include "capi/dlpack.h"
#include "capi/entries.h"
#include "capi/handles.h"

namespace dsv41c::capi {
namespace {

// Kept while a call runs, whoever frees the handle meanwhile.
std::shared_ptr<Session> session_of(dsv_session* session) { return required(session, "session").session; }

[[noreturn]] void refuse(const std::string& subject, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0801,
               .subject = subject,
               .found = found,
               .needed = needed,
               .action = "correct the call; no state was changed"});
}

void run_last(Session& session, std::span<const int32_t> tokens, DLManagedTensorVersioned** logits) {
  if (logits) *logits = nullptr;
  const int32_t last = static_cast<int32_t>(tokens.size()) - 1;
  SessionOutputs outputs = session.run(tokens, {&last, logits && !tokens.empty() ? 1u : 0u});
  if (logits) *logits = new_tensor(std::move(outputs.logits), {1, session.vocabulary()});
}

struct Inputs {
  std::span<const int32_t> tokens, rows;
  int32_t last = 0;
};

void read_inputs(Inputs& inputs, const char* const* names, DLManagedTensorVersioned* const* tensors, size_t count) {
  bool has_tokens = false, has_rows = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = &required(names[i], "a name in in_names");
    bool& given = name == "tokens" ? has_tokens : has_rows;
    if (name != "tokens" && name != "rows") refuse("input " + name, "no such input", "tokens or rows");
    if (std::exchange(given, true)) refuse("input " + name, "the name twice", "each name once");
    (name == "tokens" ? inputs.tokens : inputs.rows) = int32_vector(tensors[i], name);
  }
  if (!has_tokens) refuse("input tokens", "no such input in the call", "the input");
  inputs.last = static_cast<int32_t>(inputs.tokens.size()) - 1;
  if (!has_rows && inputs.last >= 0) inputs.rows = {&inputs.last, 1};
}

void check_outputs(const char* const* names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const std::string name = &required(names[i], "a name in out_names");
    if (name != "logits" && name != "choices") refuse("output " + name, "no such output", "logits or choices");
    for (size_t j = 0; j < i; ++j)
      if (name == names[j]) refuse("output " + name, "the name twice", "each name once");
  }
}

}  // namespace

dsv_status* session_create(dsv_engine* engine, uint64_t max_tokens, dsv_session** out) {
  return guard([&] {
    required(out, "out") = nullptr;
    const auto most = static_cast<int64_t>(std::min<uint64_t>(max_tokens, INT64_MAX));
    *out = new dsv_session{std::make_shared<Session>(required(engine, "engine").engine, most)};
  });
}

dsv_status* session_prefill(dsv_session* session, const int32_t* tokens, size_t n_tokens,
                            DLManagedTensorVersioned** logits) {
  return guard([&] {
    const auto chosen = session_of(session);
    if (n_tokens > 0) required(tokens, "tokens");
    run_last(*chosen, {tokens, n_tokens}, logits);
  });
}

dsv_status* session_decode(dsv_session* session, int32_t token, DLManagedTensorVersioned** logits) {
  return guard([&] { run_last(*session_of(session), {&token, 1}, logits); });
}

dsv_status* session_truncate(dsv_session* session, uint64_t n_tokens) {
  return guard([&] { session_of(session)->truncate(static_cast<int64_t>(std::min<uint64_t>(n_tokens, INT64_MAX))); });
}

dsv_status* session_run(dsv_session* session, const char* const* in_names, DLManagedTensorVersioned* const* in,
                        size_t n_in, const char* const* out_names, DLManagedTensorVersioned** out, size_t n_out) {
  return guard([&] {
    const auto chosen = session_of(session);
    if (n_in > 0) required(in_names, "in_names"), required(in, "in");
    if (n_out > 0) required(out_names, "out_names"), required(out, "out");
    if (n_in > 2 || n_out > 2)
      refuse("session_run", std::to_string(n_in) + " inputs, " + std::to_string(n_out) + " outputs",
             "inputs tokens and rows, outputs logits and choices");
    for (size_t i = 0; i < n_out; ++i) out[i] = nullptr;
    check_outputs(out_names, n_out);
    Inputs inputs;
    read_inputs(inputs, in_names, in, n_in);
    SessionOutputs outputs = chosen->run(inputs.tokens, inputs.rows);
    const auto rows = static_cast<int64_t>(outputs.choices.size());
    for (size_t i = 0; i < n_out; ++i)
      out[i] = std::string(out_names[i]) == "logits"
                   ? new_tensor(std::move(outputs.logits), {rows, chosen->vocabulary()})
                   : new_tensor(std::move(outputs.choices), {rows});
  });
}

void session_free(dsv_session* session) { delete session; }

}  // namespace dsv41c::capi
