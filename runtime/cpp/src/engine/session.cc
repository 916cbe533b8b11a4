// Chunks of a session's tokens as steps of their own.
#include "engine/session.h"

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

[[noreturn]] void refuse(std::string_view code, const std::string& subject, const std::string& found,
                         const std::string& needed, const std::string& action) {
  throw Error({.code = code, .subject = subject, .found = found, .needed = needed, .action = action});
}

}  // namespace

class Session::Use {
 public:
  explicit Use(Session& session) : busy_(session.busy_) {
    if (busy_.exchange(true))
      refuse(plan_format::E1007, "session", "a call while another thread is inside one", "one thread at a time",
             "wait for the other call, or create another session");
  }
  ~Use() { busy_ = false; }

 private:
  std::atomic<bool>& busy_;
};

Session::Session(std::shared_ptr<Engine> engine, int64_t max_tokens)
    : engine_(std::move(engine)), max_tokens_(max_tokens), rows_(engine_->limits()) {
  const EngineLimits& limits = engine_->limits();
  if (max_tokens < 1 || max_tokens > limits.context)
    refuse(plan_format::E0901, "max_tokens of a session", std::to_string(max_tokens),
           "an integer in 1.." + std::to_string(limits.context) + " (max_context)", "correct the call");
  if (!engine_->reserve(sequence_, max_tokens)) {
    const Statistics now = engine_->statistics();
    refuse(plan_format::E1001, "session",
           std::to_string(now.slots_total - now.slots_used) + " free slots and " +
               std::to_string(now.pages_total - now.pages_used) + " free pages",
           "a slot and " + std::to_string(limits.pages_for(max_tokens)) + " pages",
           "ask for fewer tokens, or try again when requests have ended");
  }
}

Session::~Session() { engine_->release(sequence_); }

void Session::check(std::span<const int32_t> tokens, std::span<const int32_t> rows) const {
  const int64_t vocabulary = engine_->limits().vocabulary;
  const auto count = static_cast<int64_t>(tokens.size());
  if (tokens.empty()) refuse(plan_format::E0902, "tokens of a session", "none", "at least one", "pass tokens");
  for (int32_t token : tokens)
    if (token < 0 || token >= vocabulary)
      refuse(plan_format::E0902, "tokens of a session", std::to_string(token),
             "integers in 0.." + std::to_string(vocabulary - 1) + " (the vocabulary)", "correct the tokens");
  if (sequence_.length() + count > max_tokens_)
    refuse(plan_format::E1001, "session", std::to_string(sequence_.length() + count) + " tokens",
           "at most max_tokens " + std::to_string(max_tokens_), "create a session for more");
  const int64_t prompt = sequence_.prompt_length > 0 ? sequence_.prompt_length : sequence_.length() + count;
  const EngineLimits& limits = engine_->limits();
  const int64_t first = std::max<int64_t>(limits.runs_all_rows ? 0 : limits.first_kept(prompt) - sequence_.length(), 0);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] < first || rows[i] >= count || (i > 0 && rows[i] <= rows[i - 1]))
      refuse(plan_format::E0801, "rows of a session, entry " + std::to_string(i), std::to_string(rows[i]),
             "strictly ascending indices of tokens from " + std::to_string(first) + ", below " + std::to_string(count) +
                 (first > 0 ? " (the decoder does not run on rows before)" : ""),
             "correct the rows");
}

SessionOutputs Session::run(std::span<const int32_t> tokens, std::span<const int32_t> rows) {
  const Use use(*this);
  check(tokens, rows);
  const int64_t before = sequence_.length(), prompt = sequence_.prompt_length;
  sequence_.tokens.insert(sequence_.tokens.end(), tokens.begin(), tokens.end());
  if (sequence_.prompt_length == 0) sequence_.prompt_length = sequence_.length();
  std::vector<int64_t> wanted;
  for (int32_t row : rows) wanted.push_back(before + row);
  SessionOutputs outputs;
  try {
    while (sequence_.rows_left() > 0)
      engine_->run_between([&](Executor& executor) { run_chunk(executor, wanted, outputs); });
  } catch (...) {
    sequence_.tokens.resize(static_cast<size_t>(before));
    sequence_.position = 0;
    sequence_.prompt_length = prompt;
    throw;
  }
  return outputs;
}

// As many rows as a step holds, and as many logits.
void Session::run_chunk(Executor& executor, std::span<const int64_t> wanted, SessionOutputs& outputs) {
  const EngineLimits& limits = engine_->limits();
  int64_t count = rows_within(sequence_, limits.rows, limits.kept_rows, limits);
  std::vector<int32_t> logit_rows;
  for (int64_t position : wanted) {
    if (position < sequence_.position || position >= sequence_.position + count) continue;
    if (static_cast<int64_t>(logit_rows.size()) == limits.logit_rows) {
      count = position - sequence_.position;
      break;
    }
    logit_rows.push_back(static_cast<int32_t>(position - sequence_.position));
  }
  rows_.clear();
  rows_.add(sequence_, count, logit_rows);
  executor.step(rows_.inputs());
  sequence_.position += count;
  if (logit_rows.empty()) return executor.synchronize();
  const auto found = static_cast<int64_t>(logit_rows.size());
  const StepOutputs step = read_outputs(executor, found, limits.vocabulary);
  for (int64_t row = 0; row < found; ++row) {
    const Logits logits = step.logits(row);
    outputs.logits.insert(outputs.logits.end(), logits.begin(), logits.end());
    outputs.choices.push_back(step.token(row));
  }
}

void Session::truncate(int64_t length) {
  const Use use(*this);
  if (length < 0 || length > sequence_.length())
    refuse(plan_format::E0901, "n_tokens of session_truncate", std::to_string(length),
           "an integer in 0.." + std::to_string(sequence_.length()) + ", the tokens of the session",
           "correct the call");
  if (length == sequence_.length()) return;
  sequence_.tokens.resize(static_cast<size_t>(length));
  sequence_.position = 0;
  if (length < sequence_.prompt_length) sequence_.prompt_length = 0;  // the next call's tokens end the prompt
}

}  // namespace dsv41c
