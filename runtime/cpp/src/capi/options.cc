#include "capi/options.h"

#include <nlohmann/json.hpp>

#include "capi/structs.h"
#include "capi/time_limit.h"

namespace dsv41c::capi {
namespace {

int32_t level_of(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return DSV_LOG_ERROR;
    case LogLevel::warning:
      return DSV_LOG_WARNING;
    case LogLevel::info:
      return DSV_LOG_INFO;
  }
  return DSV_LOG_ERROR;
}

template <class T>
std::vector<T> copied(const T* items, size_t count, const char* name, size_t most) {
  if (count > most)
    throw Error({.code = plan_format::E0901,
                 .subject = name,
                 .found = std::to_string(count) + " entries",
                 .needed = "at most " + std::to_string(most),
                 .action = "correct the call"});
  if (count > 0) required(items, name);
  return std::vector<T>(items, items + count);
}

std::string checked_text(const char* given, const char* name) {
  if (!given) return {};
  std::string text(given, strnlen(given, MAX_ID_BYTES + 1));
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return text;
  } catch (const nlohmann::json::exception&) {
    throw Error({.code = plan_format::E0901,
                 .subject = name,
                 .found = "bytes that are not UTF-8",
                 .needed = "UTF-8",
                 .action = "correct the text"});
  }
}

}  // namespace

dsv_open_options read_open_options(const dsv_open_options* given) {
  const auto options = read_struct(given, "dsv_open_options");
  if (options.reserved != 0) unknown_field("reserved of dsv_open_options", std::to_string(options.reserved));
  if (options.verify > 1) unknown_field("verify of dsv_open_options", std::to_string(options.verify));
  return options;
}

dsv_engine_options read_engine_options(const dsv_engine_options* given) {
  const auto options = read_struct(given, "dsv_engine_options");
  check_flags("flags of dsv_engine_options", options.flags, DSV_ENGINE_PAUSED);
  if (options.reserved != 0) unknown_field("reserved of dsv_engine_options", std::to_string(options.reserved));
  return options;
}

EngineOptions engine_options(const dsv_engine_options& given) {
  EngineOptions options;
  options.lower = {.slots = given.max_batch,
                   .rows = given.max_batch_tokens,
                   .context = bounded(given.max_context),
                   .pages = bounded(given.kv_pages),
                   .queue = given.max_queue};
  options.paused = (given.flags & DSV_ENGINE_PAUSED) != 0;
  if (given.log)
    options.log = [log = given.log, user = given.log_user](LogLevel level, const std::string& message) {
      log(user, level_of(level), message.c_str(), message.size());
    };
  return options;
}

GenerateParams read_generate_params(const dsv_generate_params* pointer) {
  const auto given = read_struct(&required(pointer, "params"), "dsv_generate_params");
  check_flags("flags of dsv_generate_params", given.flags, DSV_GEN_IGNORE_EOS);
  GenerateParams params;
  params.prompt = copied(given.tokens, given.n_tokens, "tokens", INT32_MAX);
  params.max_new_tokens = given.max_new_tokens;
  params.min_new_tokens = given.min_new_tokens;
  params.temperature = given.temperature;
  params.top_p = given.top_p;
  params.top_k = given.top_k;
  params.num_logprobs = given.n_logprobs;
  params.seed = given.seed;
  params.stop_ids = copied(given.stop_ids, given.n_stop_ids, "stop_ids", static_cast<size_t>(MAX_STOP_IDS));
  params.ignore_eos = (given.flags & DSV_GEN_IGNORE_EOS) != 0;
  params.priority = given.priority;
  params.deadline_ms = static_cast<uint64_t>(milliseconds(given.deadline_ms).count());
  params.id = checked_text(given.id, "id");
  return params;
}

}  // namespace dsv41c::capi
