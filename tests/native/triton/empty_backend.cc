// A backend for benchmarks: reads no input and answers one request with one token, on the thread of Execute.
#include "triton_abi.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

void drop(TE error) {
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

TE answer(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  if (TE error = TRITONBACKEND_ResponseNewFromFactory(&response, factory)) return error;
  TRITONBACKEND_Output* output = nullptr;
  const int64_t shape = 1;
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  if (TE error = TRITONBACKEND_ResponseOutput(response, &output, "output_ids", TRITONSERVER_TYPE_INT64, &shape, 1))
    return error;
  if (TE error = TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(int64_t), &memory, &device)) return error;
  *static_cast<int64_t*>(buffer) = 1;
  return TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr);
}

}  // namespace

EXPORTED TE TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request** requests,
                                               uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    if (TE error = TRITONBACKEND_ResponseFactoryNew(&factory, requests[i])) return error;
    drop(answer(factory));
    drop(TRITONBACKEND_ResponseFactoryDelete(factory));
    drop(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return nullptr;
}
