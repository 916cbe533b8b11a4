// Calls of Triton and of the engine: results are values, failures exceptions, and handles free themselves.
#pragma once

#include <dsv41c/dsv41c.h>

#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "triton_abi.h"

namespace dsv41c_triton {

using Json = nlohmann::json;

// Why a load or a request is refused, as Triton reports it.
struct Refusal : std::runtime_error {
  Refusal(TRITONSERVER_Error_Code code, const std::string& text) : std::runtime_error(text), code(code) {}
  TRITONSERVER_Error_Code code;
};
Refusal invalid(const std::string& subject, const std::string& found, const std::string& needed);
Refusal unknown_name(const std::string& kind, const std::string& name, const std::vector<std::string>& known);
// Of an event's or a status's fields.
Refusal refusal_of(dsv_code code, const char* error_json, const char* message);

void check(TE error);            // throws a Refusal
void check(dsv_status* status);  // throws a Refusal
void forget(TE error) noexcept;  // of a call whose failure changes nothing
void log(TRITONSERVER_LogLevel level, const std::string& text) noexcept;

// The table of libdsv41c.so.1; UNSUPPORTED where the library is older than this backend.
const dsv_api& api();

struct Free {
  void operator()(TRITONSERVER_Message* m) const { forget(TRITONSERVER_MessageDelete(m)); }
  void operator()(TRITONSERVER_Parameter* p) const { TRITONSERVER_ParameterDelete(p); }
  void operator()(TRITONSERVER_MetricFamily* f) const { forget(TRITONSERVER_MetricFamilyDelete(f)); }
  void operator()(TRITONSERVER_Metric* m) const { forget(TRITONSERVER_MetricDelete(m)); }
  void operator()(TRITONBACKEND_ResponseFactory* f) const { forget(TRITONBACKEND_ResponseFactoryDelete(f)); }
  void operator()(TRITONBACKEND_Response* r) const { forget(TRITONBACKEND_ResponseDelete(r)); }
  void operator()(dsv_artifact* a) const { api().artifact_close(a); }
  void operator()(dsv_engine* e) const { api().status_free(api().engine_close(e, 60'000)); }
  void operator()(dsv_request* r) const { api().request_free(r); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// What a call writes behind its last pointer.
template <class Out, class Of>
Out get(TE (*call)(Of*, Out*), Of* of) {
  Out out{};
  check(call(of, &out));
  return out;
}
template <class Out, class Of>
Out get(TE (*call)(Of*, uint32_t, Out*), Of* of, uint32_t index) {
  Out out{};
  check(call(of, index, &out));
  return out;
}

// Runs what Triton calls: nothing may throw across C.
template <class F>
TE guarded(F&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Refusal& refusal) {
    return TRITONSERVER_ErrorNew(refusal.code, refusal.what());
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
}

// The entry of a table; a Refusal with the nearest name where it has none.
template <class T>
const T& entry(const std::map<std::string, T>& table, const std::string& kind, const std::string& name) {
  if (const auto found = table.find(name); found != table.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& item : table) known.push_back(item.first);
  throw unknown_name(kind, name, known);
}

// A number that T holds; a Refusal for anything else.
template <class T>
T number(const std::string& subject, const Json& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (value.is_number()) return value.get<T>();
    throw invalid(subject, value.dump(), "a number");
  } else {
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                                 : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
    if (fits) return value.get<T>();
    const auto [least, most] = std::pair(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    throw invalid(subject, value.dump(), "an integer in " + std::to_string(least) + ".." + std::to_string(most));
  }
}

}  // namespace dsv41c_triton
