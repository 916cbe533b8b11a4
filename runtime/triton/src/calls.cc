#include "calls.h"

#include <algorithm>
#include <numeric>

namespace dsv41c_triton {

namespace {

size_t edits(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j])}));
  }
  return row.back();
}

TRITONSERVER_Error_Code triton_code(dsv_code code) {
  static const std::map<dsv_code, TRITONSERVER_Error_Code> table = {
      {DSV_E_INVALID_ARG, TRITONSERVER_ERROR_INVALID_ARG},      {DSV_E_NOT_FOUND, TRITONSERVER_ERROR_NOT_FOUND},
      {DSV_E_CORRUPT_ARTIFACT, TRITONSERVER_ERROR_INVALID_ARG}, {DSV_E_UNSUPPORTED, TRITONSERVER_ERROR_UNSUPPORTED},
      {DSV_E_VERSION_MISMATCH, TRITONSERVER_ERROR_UNSUPPORTED}, {DSV_E_OUT_OF_MEMORY, TRITONSERVER_ERROR_UNAVAILABLE},
      {DSV_E_KV_EXHAUSTED, TRITONSERVER_ERROR_UNAVAILABLE},     {DSV_E_QUEUE_FULL, TRITONSERVER_ERROR_UNAVAILABLE},
      {DSV_E_DEVICE, TRITONSERVER_ERROR_UNAVAILABLE},           {DSV_E_CLOSED, TRITONSERVER_ERROR_UNAVAILABLE},
      {DSV_E_CANCELLED, TRITONSERVER_ERROR_CANCELLED},          {DSV_E_DEADLINE, TRITONSERVER_ERROR_CANCELLED}};
  const auto found = table.find(code);
  return found == table.end() ? TRITONSERVER_ERROR_INTERNAL : found->second;
}

}  // namespace

Refusal invalid(const std::string& subject, const std::string& found, const std::string& needed) {
  return {TRITONSERVER_ERROR_INVALID_ARG, "dsv41c: " + subject + ": found " + found + ", needed " + needed};
}

Refusal unknown_name(const std::string& kind, const std::string& name, const std::vector<std::string>& known) {
  const auto nearer = [&](const auto& a, const auto& b) { return edits(name, a) < edits(name, b); };
  const std::string nearest = *std::min_element(known.begin(), known.end(), nearer);
  return invalid(kind, "unknown \"" + name + '"', "a known one; the nearest is \"" + nearest + '"');
}

Refusal refusal_of(dsv_code code, const char* error_json, const char* message) {
  const Json fields = Json::parse(error_json, nullptr, false);
  if (!fields.is_object()) return {triton_code(code), std::string("dsv41c: ") + message};
  const auto text = [&](const char* name) {
    const auto field = fields.find(name);
    return field != fields.end() && field->is_string() ? field->get<std::string>() : "";
  };
  const std::string where = text("where").empty() ? "" : " (" + text("where") + ")";
  return {triton_code(code), text("code") + " " + text("subject") + where + ": found " + text("found") + ", needed " +
                                 text("needed") + "; " + text("do")};
}

void check(TE error) {
  if (error == nullptr) return;
  const Refusal refusal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw refusal;
}

void check(dsv_status* status) {
  if (status == nullptr) return;
  const Refusal refusal =
      refusal_of(api().status_code(status), api().status_json(status), api().status_message(status));
  api().status_free(status);
  throw refusal;
}

void forget(TE error) noexcept {
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

void log(TRITONSERVER_LogLevel level, const std::string& text) noexcept {
  forget(TRITONSERVER_LogMessage(level, "dsv41c", 0, text.c_str()));
}

const dsv_api& api() {
  uint32_t major = 0, minor = 0;
  const dsv_api* table = dsv41c_get_api_v1(DSV_ABI_MAJOR, DSV_ABI_MINOR, &major, &minor);
  if (table != nullptr) return *table;
  const auto version = [](uint32_t a, uint32_t b) { return std::to_string(a) + "." + std::to_string(b); };
  throw Refusal(TRITONSERVER_ERROR_UNSUPPORTED, "dsv41c: libdsv41c.so.1: found interface " + version(major, minor) +
                                                    ", needed " + version(DSV_ABI_MAJOR, DSV_ABI_MINOR));
}

}  // namespace dsv41c_triton
