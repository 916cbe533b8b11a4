// Reads the check option, from the caller or from the environment.
#include "check_option.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

constexpr const char* VARIABLE = "DSV41C_CHECK";
constexpr std::string_view OFF = "off", FULL = "full";

[[noreturn]] void refuse(const char* name, std::string_view found) {
  throw Error({.code = plan_format::E0901,
               .subject = name,
               .found = std::string(found),
               .needed = "off, full or full:SEED, where the seed is a number of at least 0",
               .action = "correct the value; full checks every launch on the CPU and changes no result"});
}

uint64_t parse_seed(const char* name, std::string_view text) {
  const std::string_view digits = text.substr(FULL.size() + 1);
  uint64_t seed = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (failure != std::errc() || end != digits.data() + digits.size()) refuse(name, text);
  return seed;
}

}  // namespace

std::optional<uint64_t> parse_check(const char* given) {
  const char* const name = given ? "check" : VARIABLE;
  const char* const value = given ? given : std::getenv(VARIABLE);
  if (!value) return std::nullopt;
  const std::string_view text = value;
  if (text == OFF) return std::nullopt;
  if (text == FULL) return 0;
  if (text.starts_with(FULL) && text.substr(FULL.size()).starts_with(':')) return parse_seed(name, text);
  refuse(name, text);
}

std::string check_text(std::optional<uint64_t> seed) {
  return std::string(seed ? FULL : OFF) + (seed ? ":" + std::to_string(*seed) : "");
}

void refuse_check(const std::string& target) {
  throw Error({.code = plan_format::E0901,
               .subject = "check full",
               .found = "an artifact for " + target,
               .needed = "an artifact for cpu: the checks run every launch twice on memory that the host fills",
               .action = "load it with poison=255, which fills the arena before every method, and unset DSV41C_CHECK; "
                         "for the checks compile the same checkpoint with --target cpu"});
}

}  // namespace dsv41c
