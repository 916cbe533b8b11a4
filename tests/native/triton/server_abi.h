// The part of the server's own interface that the host uses, in own declarations.
#pragma once

#include "triton_abi.h"

extern "C" {

enum TRITONSERVER_ModelControlMode : int32_t { TRITONSERVER_MODEL_CONTROL_EXPLICIT = 2 };

using AllocateFn = TE (*)(struct TRITONSERVER_ResponseAllocator* allocator, const char* tensor, size_t bytes,
                          TRITONSERVER_MemoryType wanted, int64_t wanted_device, void* user, void** buffer,
                          void** buffer_user, TRITONSERVER_MemoryType* memory, int64_t* device);
using FreeFn = TE (*)(TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_user, size_t bytes,
                      TRITONSERVER_MemoryType memory, int64_t device);
using ReleaseFn = void (*)(struct TRITONSERVER_InferenceRequest* request, uint32_t flags, void* user);
using CompleteFn = void (*)(struct TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user);

TE TRITONSERVER_ServerOptionsNew(struct TRITONSERVER_ServerOptions** options);
TE TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions* options);
TE TRITONSERVER_ServerOptionsSetModelRepositoryPath(TRITONSERVER_ServerOptions* options, const char* path);
TE TRITONSERVER_ServerOptionsSetBackendDirectory(TRITONSERVER_ServerOptions* options, const char* path);
TE TRITONSERVER_ServerOptionsSetModelControlMode(TRITONSERVER_ServerOptions*, TRITONSERVER_ModelControlMode mode);
TE TRITONSERVER_ServerOptionsSetStrictModelConfig(TRITONSERVER_ServerOptions* options, bool on);
TE TRITONSERVER_ServerOptionsSetLogInfo(TRITONSERVER_ServerOptions* options, bool on);
TE TRITONSERVER_ServerNew(struct TRITONSERVER_Server** server, TRITONSERVER_ServerOptions* options);
TE TRITONSERVER_ServerDelete(TRITONSERVER_Server* server);
TE TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server, const char* model);
TE TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server, const char* model);
TE TRITONSERVER_ServerInferAsync(TRITONSERVER_Server*, TRITONSERVER_InferenceRequest*, struct TRITONSERVER_Trace*);
TE TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest**, TRITONSERVER_Server*, const char*, int64_t);
TE TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request);
TE TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest* request);
TE TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request, const char* name,
                                         TRITONSERVER_DataType type, const int64_t* shape, uint64_t rank);
TE TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest* request, const char* name,
                                                const void* data, size_t bytes, TRITONSERVER_MemoryType, int64_t);
TE TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest*, const char* name, int64_t value);
TE TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest*, ReleaseFn release, void* user);
TE TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest*, TRITONSERVER_ResponseAllocator*,
                                                    void* allocator_user, CompleteFn complete, void* user);
TE TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator**, AllocateFn, FreeFn, void* start);
TE TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator* allocator);
TE TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response);
TE TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response);
}
