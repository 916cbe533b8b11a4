// Refuses a request before it is queued: the first wrong field, with what was found and what is needed.
#include "engine/params.h"

#include <cmath>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void need(bool holds, const GenerateParams& params, const char* field, const std::string& found,
          const std::string& needed) {
  if (holds) return;
  throw Error({.code = plan_format::E0901,
               .subject = std::string(field) + " of " + params.name(),
               .found = found,
               .needed = needed,
               .action = std::string("pass a legal ") + field});
}

[[noreturn]] void bad_prompt(const GenerateParams& params, const std::string& where, const std::string& found,
                             const std::string& needed) {
  throw Error({.code = plan_format::E0902,
               .subject = "prompt of " + params.name() + where,
               .found = found,
               .needed = needed,
               .action = "correct the prompt"});
}

std::string ids_below(int64_t vocabulary) {
  return "an integer in 0.." + std::to_string(vocabulary - 1) + " (the vocabulary)";
}

void check_prompt(const GenerateParams& params, const EngineLimits& limits) {
  if (params.prompt.empty()) bad_prompt(params, "", "no token ids", "at least one token id");
  for (size_t i = 0; i < params.prompt.size(); ++i)
    if (params.prompt[i] < 0 || params.prompt[i] >= limits.vocabulary)
      bad_prompt(params, ", id at index " + std::to_string(i), std::to_string(params.prompt[i]),
                 ids_below(limits.vocabulary));
  const auto length = static_cast<int64_t>(params.prompt.size());
  if (length >= limits.context)
    bad_prompt(params, "", std::to_string(length) + " token ids",
               "at most " + std::to_string(limits.context - 1) + ", for one more fits the context of " +
                   std::to_string(limits.context));
}

void check_stop_ids(const GenerateParams& params, const EngineLimits& limits) {
  const auto count = static_cast<int64_t>(params.stop_ids.size());
  need(count <= MAX_STOP_IDS, params, "stop_ids", std::to_string(count) + " ids",
       "at most " + std::to_string(MAX_STOP_IDS));
  for (int32_t id : params.stop_ids)
    need(id >= 0 && id < limits.vocabulary, params, "stop_ids", std::to_string(id), ids_below(limits.vocabulary));
}

void check_fits(const GenerateParams& params, const EngineLimits& limits) {
  const int64_t rows = most_rows_held(params, limits), pages = limits.pages_for(rows);
  if (pages <= limits.pages) return;
  throw Error({.code = plan_format::E1001,
               .subject = params.name(),
               .found = std::to_string(rows) + " rows (prompt " + std::to_string(params.prompt.size()) +
                        ", max_new_tokens " + std::to_string(params.max_new_tokens) + "), " + std::to_string(pages) +
                        " pages of " + std::to_string(limits.block_size),
               .needed = "at most " + std::to_string(limits.pages) + " pages, all that the engine has",
               .action = "ask for fewer tokens, or give the engine more pages"});
}

}  // namespace

// The last token of an answer needs no row.
int64_t most_rows_held(const GenerateParams& params, const EngineLimits& limits) {
  const auto prompt = static_cast<int64_t>(params.prompt.size());
  return std::min(prompt + params.max_new_tokens, limits.context) - 1;
}

void check_params(const GenerateParams& params, const EngineLimits& limits) {
  check_prompt(params, limits);
  need(params.max_new_tokens >= 1, params, "max_new_tokens", std::to_string(params.max_new_tokens), "an integer >= 1");
  need(params.min_new_tokens >= 0 && params.min_new_tokens <= params.max_new_tokens, params, "min_new_tokens",
       std::to_string(params.min_new_tokens),
       "an integer in 0.." + std::to_string(params.max_new_tokens) + " (max_new_tokens)");
  need(std::isfinite(params.temperature) && params.temperature >= 0, params, "temperature", number(params.temperature),
       "a finite number >= 0");
  need(params.top_p > 0 && params.top_p <= 1, params, "top_p", number(params.top_p), "a number in (0, 1]");
  need(params.top_k >= 0, params, "top_k", std::to_string(params.top_k), "an integer >= 0");
  need(params.num_logprobs >= 0 && params.num_logprobs <= MAX_LOGPROBS, params, "n_logprobs",
       std::to_string(params.num_logprobs), "an integer in 0.." + std::to_string(MAX_LOGPROBS));
  need(static_cast<int64_t>(params.id.size()) <= MAX_ID_BYTES, params, "id",
       std::to_string(params.id.size()) + " bytes", "at most " + std::to_string(MAX_ID_BYTES) + " bytes");
  check_stop_ids(params, limits);
  check_fits(params, limits);
}

}  // namespace dsv41c
