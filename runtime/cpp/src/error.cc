#include "error.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dsv41c/plan_generated.h"

namespace dsv41c {

namespace {

const plan_format::ErrorCode& entry_of(std::string_view code) {
  const auto found = std::ranges::find(plan_format::ERROR_CODES, code, &plan_format::ErrorCode::code);
  if (found == std::end(plan_format::ERROR_CODES)) throw std::logic_error("unknown error code " + std::string(code));
  return *found;
}

std::string render(const ErrorFields& fields) {
  const nlohmann::json where = fields.where ? nlohmann::json(*fields.where) : nlohmann::json(nullptr);
  const nlohmann::json object = {{"code", fields.code},     {"subject", fields.subject},
                                 {"where", where},          {"found", fields.found},
                                 {"needed", fields.needed}, {"do", fields.action}};
  return object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string unexpected(const char* what) {
  return render({.code = plan_format::E0802, .subject = "internal failure", .found = what,
                 .needed = "no exception of this kind", .action = "report it with the plan and the inputs"});
}

}  // namespace

Error::Error(ErrorFields fields)
    : fields_(std::move(fields)), exit_code_(entry_of(fields_.code).exit_code), text_(render(fields_)) {}

std::string Error::json() const { return text_; }

void write_error(dsv41c_error* error, std::string_view text) noexcept {
  if (!error || !error->text || error->capacity <= 0) return;
  const size_t bytes = std::min(text.size(), static_cast<size_t>(error->capacity - 1));
  std::memcpy(error->text, text.data(), bytes);
  error->text[bytes] = '\0';
}

void write_current_exception(dsv41c_error* error) noexcept {
  try {
    throw;
  } catch (const Error& e) {
    write_error(error, e.what());
  } catch (const std::exception& e) {
    try {
      write_error(error, unexpected(e.what()));
    } catch (...) {
      write_error(error, e.what());
    }
  } catch (...) {
    write_error(error, "an exception of unknown type");
  }
}

}  // namespace dsv41c
