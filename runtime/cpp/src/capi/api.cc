// The table, and the one symbol of the library.
#include "capi/entries.h"
#include "capi/status.h"

namespace {

using namespace dsv41c::capi;

const dsv_api TABLE = {sizeof(dsv_api), DSV_ABI_MAJOR,  DSV_ABI_MINOR,   DSV41C_VERSION,     status_code,
                       status_message,  status_json,    status_free,     buffer_data,        buffer_free,
                       artifact_open,   artifact_info,  artifact_port,   artifact_plan_json, artifact_close,
                       engine_create,   engine_info,    engine_ready,    engine_stats,       engine_metrics,
                       engine_pause,    engine_close,   generate,        request_cancel,     request_wait,
                       request_free,    session_create, session_prefill, session_decode,     session_truncate,
                       session_run,     session_free};

}  // namespace

extern "C" DSV_EXPORT const dsv_api* dsv41c_get_api_v1(uint32_t major, uint32_t minor, uint32_t* library_major,
                                                       uint32_t* library_minor) {
  if (library_major) *library_major = DSV_ABI_MAJOR;
  if (library_minor) *library_minor = DSV_ABI_MINOR;
  return major == DSV_ABI_MAJOR && minor <= DSV_ABI_MINOR ? &TABLE : nullptr;
}
