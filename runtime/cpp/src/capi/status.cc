#include "capi/status.h"

#include <new>

struct dsv_status {
  dsv_code code;
  std::string message, json;
};

namespace dsv41c::capi {
namespace {

struct Mapping {
  std::string_view code;
  dsv_code status;
};

constexpr Mapping MAPPINGS[] = {
    {plan_format::E0501, DSV_E_CORRUPT_ARTIFACT}, {plan_format::E0502, DSV_E_CORRUPT_ARTIFACT},
    {plan_format::E0503, DSV_E_UNSUPPORTED},      {plan_format::E0504, DSV_E_CORRUPT_ARTIFACT},
    {plan_format::E0601, DSV_E_NOT_FOUND},        {plan_format::E0602, DSV_E_CORRUPT_ARTIFACT},
    {plan_format::E0603, DSV_E_UNSUPPORTED},      {plan_format::E0604, DSV_E_VERSION_MISMATCH},
    {plan_format::E0607, DSV_E_CORRUPT_ARTIFACT}, {plan_format::E0701, DSV_E_OUT_OF_MEMORY},
    {plan_format::E0702, DSV_E_UNSUPPORTED},      {plan_format::E0703, DSV_E_CORRUPT_ARTIFACT},
    {plan_format::E0704, DSV_E_UNSUPPORTED},      {plan_format::E0705, DSV_E_UNSUPPORTED},
    {plan_format::E0706, DSV_E_UNSUPPORTED},      {plan_format::E0707, DSV_E_OUT_OF_MEMORY},
    {plan_format::E0801, DSV_E_INVALID_ARG},      {plan_format::E0802, DSV_E_DEVICE},
    {plan_format::E0805, DSV_E_DEVICE},           {plan_format::E0901, DSV_E_INVALID_ARG},
    {plan_format::E0902, DSV_E_INVALID_ARG},      {plan_format::E1001, DSV_E_KV_EXHAUSTED},
    {plan_format::E1002, DSV_E_QUEUE_FULL},       {plan_format::E1003, DSV_E_CANCELLED},
    {plan_format::E1004, DSV_E_DEADLINE},         {plan_format::E1005, DSV_E_CLOSED},
    {plan_format::E1006, DSV_E_NOT_FINITE},       {plan_format::E1007, DSV_E_BUSY},
    {plan_format::E1008, DSV_E_DEADLOCK},         {plan_format::E1009, DSV_E_UNSUPPORTED},
};

dsv_status& out_of_memory() {
  static dsv_status status{DSV_E_OUT_OF_MEMORY, "out of memory", "{}"};
  return status;
}

dsv_status* internal(const char* what) {
  const Error error({.code = plan_format::E0802,
                     .subject = "internal failure",
                     .found = what,
                     .needed = "no exception of this kind",
                     .action = "report it with the call"});
  return new dsv_status{DSV_E_INTERNAL, line_of(error), error.json()};
}

dsv_status* make_status() {
  try {
    throw;
  } catch (const Error& error) {
    return new dsv_status{code_of(error), line_of(error), error.json()};
  } catch (const std::bad_alloc&) {
    return &out_of_memory();
  } catch (const std::exception& error) {
    return internal(error.what());
  } catch (...) {
    return internal("an exception of unknown type");
  }
}

// Made while memory is there.
[[maybe_unused]] const dsv_status& made_early = out_of_memory();

}  // namespace

dsv_code code_of(const Error& error) {
  for (const Mapping& mapping : MAPPINGS)
    if (mapping.code == error.fields().code) return mapping.status;
  return DSV_E_INTERNAL;
}

std::string line_of(const Error& error) {
  const ErrorFields& fields = error.fields();
  std::string line = std::string(fields.code) + ' ' + fields.subject;
  if (fields.where) line += " (" + *fields.where + ')';
  return line + ": found " + fields.found + ", needed " + fields.needed + "; " + fields.action;
}

dsv_status* current_exception_status() noexcept {
  try {
    return make_status();
  } catch (...) {
    return &out_of_memory();
  }
}

dsv_code status_code(const dsv_status* status) { return status ? status->code : dsv_code{DSV_OK}; }
const char* status_message(const dsv_status* status) { return status ? status->message.c_str() : ""; }
const char* status_json(const dsv_status* status) { return status ? status->json.c_str() : "{}"; }
void status_free(dsv_status* status) {
  if (status != &out_of_memory()) delete status;
}

}  // namespace dsv41c::capi
