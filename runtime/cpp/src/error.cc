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

// At the start of a character, so that the text stays UTF-8.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

ErrorFields cut(const ErrorFields& fields, size_t most) {
  ErrorFields result{fields.code,
                     cut(fields.subject, most),
                     {},
                     cut(fields.found, most),
                     cut(fields.needed, most),
                     cut(fields.action, most)};
  if (fields.where) result.where = cut(*fields.where, most);
  return result;
}

std::string render(const ErrorFields& fields) {
  const nlohmann::json where = fields.where ? nlohmann::json(*fields.where) : nlohmann::json(nullptr);
  const nlohmann::json object = {{"code", fields.code},   {"subject", fields.subject}, {"where", where},
                                 {"found", fields.found}, {"needed", fields.needed},   {"do", fields.action}};
  return object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
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

namespace {

Error unexpected(const char* what) {
  return Error({.code = plan_format::E0802,
                .subject = "internal failure",
                .found = what,
                .needed = "no exception of this kind",
                .action = "report it with the plan and the inputs"});
}

// A valid JSON document whatever the buffer holds: the fields are cut, the longest first, and never the document.
void write_fields(dsv41c_error* error, const Error& thrown) {
  std::string text = thrown.json();
  const size_t room = error && error->capacity > 0 ? static_cast<size_t>(error->capacity - 1) : 0;
  for (size_t most = room; text.size() > room && most > 0; most /= 2) text = render(cut(thrown.fields(), most / 2));
  write_error(error, text.size() > room ? "" : text);
}

// Where not even the message can be made, the text is empty: the caller knows that the call failed.
template <class F>
void report(F&& write, dsv41c_error* error) noexcept {
  try {
    write();
  } catch (...) {
    write_error(error, "");
  }
}

}  // namespace

void write_current_exception(dsv41c_error* error) noexcept {
  try {
    throw;
  } catch (const Error& e) {
    report([&] { write_fields(error, e); }, error);
  } catch (const std::exception& e) {
    report([&] { write_fields(error, unexpected(e.what())); }, error);
  } catch (...) {
    report([&] { write_fields(error, unexpected("an exception of unknown type")); }, error);
  }
}

}  // namespace dsv41c
