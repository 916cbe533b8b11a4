// The part of Triton's backend interface (TRITONBACKEND 1.19, TRITONSERVER 1.34) that this backend uses, in own
// declarations: no package ships the headers. The build makes its stub of libtritonserver.so from the functions below.
#pragma once

#include <cstddef>
#include <cstdint>

using TE = struct TRITONSERVER_Error*;  // null: success; else owned by the caller

enum TRITONSERVER_Error_Code : int32_t {
  TRITONSERVER_ERROR_INTERNAL = 1,
  TRITONSERVER_ERROR_NOT_FOUND = 2,
  TRITONSERVER_ERROR_INVALID_ARG = 3,
  TRITONSERVER_ERROR_UNAVAILABLE = 4,
  TRITONSERVER_ERROR_UNSUPPORTED = 5,
  TRITONSERVER_ERROR_CANCELLED = 7
};
enum TRITONSERVER_DataType : int32_t {
  TRITONSERVER_TYPE_INT64 = 9,
  TRITONSERVER_TYPE_FP32 = 11,
  TRITONSERVER_TYPE_BYTES = 13
};
enum TRITONSERVER_ParameterType : int32_t {
  TRITONSERVER_PARAMETER_STRING,
  TRITONSERVER_PARAMETER_INT,
  TRITONSERVER_PARAMETER_BOOL,
  TRITONSERVER_PARAMETER_DOUBLE
};
enum TRITONSERVER_MemoryType : int32_t { TRITONSERVER_MEMORY_CPU = 0, TRITONSERVER_MEMORY_GPU = 2 };
enum TRITONSERVER_InstanceGroupKind : int32_t { TRITONSERVER_KIND_GPU = 2, TRITONSERVER_KIND_MODEL = 3 };
enum TRITONSERVER_LogLevel : int32_t { TRITONSERVER_LOG_INFO, TRITONSERVER_LOG_WARN, TRITONSERVER_LOG_ERROR };
enum TRITONSERVER_MetricKind : int32_t { TRITONSERVER_METRIC_KIND_COUNTER, TRITONSERVER_METRIC_KIND_GAUGE };
enum TRITONBACKEND_ArtifactType : int32_t { TRITONBACKEND_ARTIFACT_FILESYSTEM };
enum : uint32_t { TRITONSERVER_REQUEST_RELEASE_ALL = 1, TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1 };

extern "C" {

TE TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* text);
void TRITONSERVER_ErrorDelete(TE error);
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TE error);
const char* TRITONSERVER_ErrorMessage(TE error);
TE TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* file, int line, const char* text);
TE TRITONSERVER_MessageNewFromSerializedJson(struct TRITONSERVER_Message** message, const char* base, size_t size);
TE TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message, const char** base, size_t* size);
TE TRITONSERVER_MessageDelete(TRITONSERVER_Message* message);
struct TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name, TRITONSERVER_ParameterType,
                                                         const void* value);
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter);
TE TRITONSERVER_MetricFamilyNew(struct TRITONSERVER_MetricFamily**, TRITONSERVER_MetricKind, const char* name,
                                const char* help);
TE TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family);
TE TRITONSERVER_MetricNew(struct TRITONSERVER_Metric** metric, TRITONSERVER_MetricFamily* family,
                          const TRITONSERVER_Parameter** labels, uint64_t count);
TE TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric);
TE TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value);
TE TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value);  // gauges only

TE TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor);
TE TRITONBACKEND_BackendConfig(struct TRITONBACKEND_Backend* backend, TRITONSERVER_Message** config);
TE TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state);
TE TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state);
TE TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(struct TRITONBACKEND_BackendAttribute*, bool on);
TE TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(TRITONBACKEND_BackendAttribute*,
                                                           TRITONSERVER_InstanceGroupKind, uint64_t count,
                                                           const uint64_t* devices, uint64_t device_count);
TE TRITONBACKEND_ModelName(struct TRITONBACKEND_Model* model, const char** name);
TE TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version);
TE TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* type, const char** location);
TE TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t config_version, TRITONSERVER_Message** config);
TE TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model, bool* on);
TE TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, uint32_t config_version, TRITONSERVER_Message* config);
TE TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model, TRITONBACKEND_Backend** backend);
TE TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state);
TE TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state);
TE TRITONBACKEND_ModelInstanceName(struct TRITONBACKEND_ModelInstance* instance, const char** name);
TE TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance, TRITONSERVER_InstanceGroupKind* kind);
TE TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance* instance, int32_t* device);
TE TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Model** model);
TE TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance, void** state);
TE TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance, void* state);
// Nanoseconds of the monotonic clock: execution begins, computation begins and ends, execution ends.
TE TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance*, struct TRITONBACKEND_Request*,
                                               bool success, uint64_t, uint64_t, uint64_t, uint64_t);
TE TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance*, uint64_t batch_size, uint64_t,
                                                    uint64_t, uint64_t, uint64_t);
TE TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id);
TE TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request, uint32_t* count);
// The value is a const char*, or points to an int64_t, bool or double.
TE TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request, uint32_t index, const char** name,
                                  TRITONSERVER_ParameterType* type, const void** value);
TE TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request, uint32_t* count);
TE TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request*, uint32_t index, struct TRITONBACKEND_Input** input);
TE TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count);
TE TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index, const char** name);
TE TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t flags);
TE TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* type,
                                 const int64_t** shape, uint32_t* rank, uint64_t* bytes, uint32_t* buffers);
TE TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index, const void** buffer, uint64_t* bytes,
                             TRITONSERVER_MemoryType* memory, int64_t* device);
TE TRITONBACKEND_OutputBuffer(struct TRITONBACKEND_Output* output, void** buffer, uint64_t bytes,
                              TRITONSERVER_MemoryType* memory, int64_t* device);
TE TRITONBACKEND_ResponseFactoryNew(struct TRITONBACKEND_ResponseFactory** factory, TRITONBACKEND_Request* request);
TE TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory);
TE TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory, bool* cancelled);
TE TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory, uint32_t flags);
TE TRITONBACKEND_ResponseNewFromFactory(struct TRITONBACKEND_Response** response, TRITONBACKEND_ResponseFactory*);
TE TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response);  // only of one that was not sent
TE TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response, const char* name, int64_t value);
TE TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response, TRITONBACKEND_Output** output, const char* name,
                                TRITONSERVER_DataType type, const int64_t* shape, uint32_t rank);
TE TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t flags, TE error);  // takes the response only
}
