#include "generation.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace dsv41c_triton {

namespace {

constexpr size_t CONTEXT = 16;  // tokens: with them a detokenizer knows the bytes of a character that began earlier

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

template <class T>
void append(std::vector<T>& to, const T* from, size_t count) {
  if (from != nullptr) to.insert(to.end(), from, from + count);
}

Owned<TRITONBACKEND_ResponseFactory> factory_of(TRITONBACKEND_Request* request) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
  return Owned<TRITONBACKEND_ResponseFactory>(factory);
}

Owned<TRITONBACKEND_Response> response_of(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  check(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
  return Owned<TRITONBACKEND_Response>(response);
}

}  // namespace

Generation::Generation(TRITONBACKEND_ModelInstance* triton, TRITONBACKEND_Request* request)
    : triton_(triton), request_(request), factory_(factory_of(request)), start_ns_(now_ns()) {}

bool Generation::is_cancelled() const noexcept {
  bool cancelled = false;
  forget(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &cancelled));
  return cancelled;
}

void Generation::add(const dsv_event& event) {
  if (streams_) {
    send(event, "", 0);
    append(context_, event.tokens, event.n_tokens);
    if (context_.size() > CONTEXT) context_.erase(context_.begin(), context_.end() - CONTEXT);
    return;
  }
  append(answer_, event.tokens, event.n_tokens);
  append(logprobs_, event.logprobs, event.n_tokens);
  append(top_ids_, event.top_ids, event.n_tokens * event.n_top);
  append(top_logprobs_, event.top_logprobs, event.n_tokens * event.n_top);
}

void Generation::finish(const dsv_event& event) noexcept {
  static constexpr const char* NAMES[] = {"", "stop", "length", "cancel", "error", "deadline"};
  if (event.code != DSV_OK) return fail(refusal_of(event.code, event.error_json, event.message), event.queue_ns);
  dsv_event rest = event;
  if (!answer_.empty()) {
    rest.first_index = 0;
    rest.tokens = answer_.data();
    rest.n_tokens = answer_.size();
    rest.n_top = top_ids_.size() / answer_.size();
    rest.logprobs = logprobs_.empty() ? nullptr : logprobs_.data();
    rest.top_ids = top_ids_.empty() ? nullptr : top_ids_.data();
    rest.top_logprobs = top_logprobs_.empty() ? nullptr : top_logprobs_.data();
  }
  try {
    send(rest, NAMES[event.finish], TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  } catch (const std::exception& error) {
    return fail(Refusal(TRITONSERVER_ERROR_INTERNAL, error.what()), event.queue_ns);
  }
  release(true, event.queue_ns);
}

void Generation::fail(const Refusal& refusal, uint64_t queue_ns) noexcept {
  const TE error = TRITONSERVER_ErrorNew(refusal.code, refusal.what());
  try {
    forget(
        TRITONBACKEND_ResponseSend(response_of(factory_.get()).release(), TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  } catch (const Refusal&) {
    forget(TRITONBACKEND_ResponseFactorySendFlags(factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  TRITONSERVER_ErrorDelete(error);
  release(false, queue_ns);
}

void Generation::send(const dsv_event& part, const std::string& finish, uint32_t flags) {
  auto response = response_of(factory_.get());
  const auto count = static_cast<int64_t>(part.n_tokens), tops = static_cast<int64_t>(part.n_top);
  const auto context = static_cast<int64_t>(context_.size());
  const auto length = static_cast<char>(finish.size());  // a string tensor: four bytes of length, then the text
  const std::string reason = std::string{length, 0, 0, 0} + finish;
  put<int64_t>(response.get(), "output_ids", {count}, part.tokens, part.n_tokens);
  put<int64_t>(response.get(), "context_ids", {context}, context_.data(), context_.size());
  put<char>(response.get(), "finish_reason", {1}, reason.data(), reason.size());
  if (part.logprobs != nullptr) put<float>(response.get(), "output_logprobs", {count}, part.logprobs, part.n_tokens);
  if (part.top_ids != nullptr) {
    put<int64_t>(response.get(), "top_ids", {count, tops}, part.top_ids, part.n_tokens * part.n_top);
    put<float>(response.get(), "top_logprobs", {count, tops}, part.top_logprobs, part.n_tokens * part.n_top);
  }
  check(TRITONBACKEND_ResponseSetIntParameter(response.get(), "first_index", static_cast<int64_t>(part.first_index)));
  check(TRITONBACKEND_ResponseSend(response.release(), flags, nullptr));
}

template <class To, class From>
void Generation::put(TRITONBACKEND_Response* response, const char* name, std::vector<int64_t> shape, const From* from,
                     size_t count) {
  constexpr auto TYPE = std::is_same_v<To, float>     ? TRITONSERVER_TYPE_FP32
                        : std::is_same_v<To, int64_t> ? TRITONSERVER_TYPE_INT64
                                                      : TRITONSERVER_TYPE_BYTES;
  if (!outputs_.contains(name)) return;
  if (is_batched_) shape.insert(shape.begin(), 1);
  TRITONBACKEND_Output* output = nullptr;
  check(TRITONBACKEND_ResponseOutput(response, &output, name, TYPE, shape.data(), static_cast<uint32_t>(shape.size())));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, count * sizeof(To), &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU) throw invalid(name, "a buffer in GPU memory", "one in host memory");
  std::copy(from, from + count, static_cast<To*>(buffer));
}

void Generation::release(bool success, uint64_t queue_ns) noexcept {
  const uint64_t end = now_ns(), computed = std::min(end, start_ns_ + queue_ns);
  forget(TRITONBACKEND_ModelInstanceReportStatistics(triton_, request_, success, start_ns_, computed, end, end));
  forget(TRITONBACKEND_ModelInstanceReportBatchStatistics(triton_, 1, start_ns_, computed, end, end));
  forget(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace dsv41c_triton
