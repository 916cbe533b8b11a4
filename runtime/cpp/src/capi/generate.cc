// dsv_request: parameters in, events out.
#include "capi/entries.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/time_limit.h"

namespace dsv41c::capi {
namespace {

uint32_t finish_of(Finish finish) {
  switch (finish) {
    case Finish::none:
      return DSV_FIN_NONE;
    case Finish::stop:
      return DSV_FIN_STOP;
    case Finish::length:
      return DSV_FIN_LENGTH;
    case Finish::cancel:
      return DSV_FIN_CANCEL;
    case Finish::error:
      return DSV_FIN_ERROR;
    case Finish::deadline:
      return DSV_FIN_DEADLINE;
  }
  return DSV_FIN_ERROR;
}

dsv_event tokens_event(const TokenRun& run) {
  const bool with_logprobs = !run.logprobs.empty();
  dsv_event event{};
  event.kind = DSV_EV_TOKENS;
  event.tokens = run.tokens.data();
  event.n_tokens = run.tokens.size();
  event.first_index = static_cast<uint64_t>(run.first_index);
  event.logprobs = with_logprobs ? run.logprobs.data() : nullptr;
  event.top_ids = with_logprobs ? run.top_ids.data() : nullptr;
  event.top_logprobs = with_logprobs ? run.top_logprobs.data() : nullptr;
  event.n_top = static_cast<size_t>(run.num_top);
  return event;
}

dsv_event ending_event(const Ending& ending) {
  dsv_event event{};
  event.kind = ending.finish == Finish::error ? DSV_EV_ERROR : DSV_EV_DONE;
  event.finish = finish_of(ending.finish);
  event.first_index = static_cast<uint64_t>(ending.num_tokens);
  event.code = ending.error ? code_of(*ending.error) : dsv_code{DSV_OK};
  event.preemptions = static_cast<uint32_t>(ending.preemptions);
  event.queue_ns = ending.queue_ns;
  event.prefill_ns = ending.prefill_ns;
  event.decode_ns = ending.decode_ns;
  return event;
}

bool deliver(dsv_event_fn callback, void* user, const Event& news) noexcept {
  try {
    dsv_event event = news.run ? tokens_event(*news.run) : ending_event(*news.ending);
    const Error* const error = news.ending ? news.ending->error.get() : nullptr;
    const std::string message = error ? line_of(*error) : "", json = error ? error->json() : "";
    event.struct_size = sizeof event;
    event.message = message.c_str();
    event.error_json = json.c_str();
    return callback(user, &event) != 0;
  } catch (...) {  // of a callback in C++, against the rules, or of memory that is out
    return true;
  }
}

}  // namespace

dsv_status* generate(dsv_engine* engine, const dsv_generate_params* params, dsv_event_fn callback, void* user,
                     dsv_request** out) {
  return guard([&] {
    if (out) *out = nullptr;
    Engine& chosen = *required(engine, "engine").engine;
    required(callback, "callback");
    auto handle = std::make_unique<dsv_request>();
    handle->outbox = chosen.submit(read_generate_params(params),
                                   [callback, user](const Event& event) { return deliver(callback, user, event); });
    if (out) *out = handle.release();
  });
}

dsv_status* request_cancel(dsv_request* request) {
  return guard([&] { required(request, "request").outbox->cancel(); });
}

dsv_status* request_wait(dsv_request* request, uint64_t timeout_ms) {
  return guard([&] {
    const std::shared_ptr<Outbox> outbox = required(request, "request").outbox;  // whoever frees the handle meanwhile
    if (Delivery::in_callback())
      throw Error({.code = plan_format::E1008,
                   .subject = "request_wait",
                   .found = "a call inside a callback, whose end it may wait for",
                   .needed = "a call from another thread",
                   .action = "wait outside of callbacks"});
    if (!outbox->wait_delivered(milliseconds(timeout_ms)))
      throw time_limit("request_wait", timeout_ms, "the terminal event of the request");
  });
}

void request_free(dsv_request* request) {
  if (!request) return;
  request->outbox->cancel();  // of one that has ended: nothing
  delete request;
}

}  // namespace dsv41c::capi
