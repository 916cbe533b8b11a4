// The thread of an engine: cancels and deadlines, jobs of sessions, one step, its tokens, and again.
#include <algorithm>
#include <iterator>

#include "dsv41c/plan_generated.h"
#include "engine/engine.h"
#include "engine/outputs.h"
#include "error.h"

namespace dsv41c {
namespace {

uint64_t nanoseconds(Clock::time_point from, Clock::time_point to) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

Error cancelled(const Request& request) {
  return Error({.code = plan_format::E1003,
                .subject = request.params.name(),
                .found = "a cancel after " + std::to_string(request.num_generated()) + " tokens",
                .needed = "none",
                .action = "nothing: the caller asked for it"});
}

Error late(const Request& request) {
  return Error({.code = plan_format::E1004,
                .subject = request.params.name(),
                .found = std::to_string(request.num_generated()) + " tokens after " +
                         std::to_string(request.params.deadline_ms) + " ms",
                .needed = "an answer before its deadline",
                .action = "allow more time, or ask for less while the engine is busy"});
}

Error not_finite(const Request& request, Logits logits) {
  std::string which;
  for (size_t i = 0; i < logits.size() && which.empty(); ++i)
    if (!all_finite(logits.subspan(i, 1))) which = "logit " + std::to_string(i) + " = " + std::to_string(logits[i]);
  return Error({.code = plan_format::E1006,
                .subject = request.params.name() + ", token " + std::to_string(request.num_generated()),
                .found = which,
                .needed = "finite logits",
                .action = "look for weights that are not numbers: dsv41c check"});
}

Error unexpected(const char* what) {
  return Error({.code = plan_format::E0802,
                .subject = "internal failure",
                .found = what,
                .needed = "no exception of this kind",
                .action = "report it with the plan and the inputs"});
}

}  // namespace

void Engine::serve() {
  std::unique_lock lock(mutex_);
  while (!closing_) try {
      take_turn(lock);
    } catch (const std::exception& error) {
      if (!lock.owns_lock()) lock.lock();
      fail(unexpected(error.what()));
    }
  const Error closed({.code = plan_format::E1005,
                      .subject = "engine",
                      .found = "a closed engine",
                      .needed = "an open one until the answer is complete",
                      .action = "wait for requests before the engine is closed"});
  for (Job* job : std::exchange(jobs_, {})) job->done.set_exception(std::make_exception_ptr(closed));
  end_all(closed, Finish::cancel);
  executor_.reset();
}

void Engine::take_turn(std::unique_lock<std::mutex>& lock) {
  const bool worked = run_job(lock);
  end_cancelled_and_late();
  const int64_t preemptions = scheduler_.preemptions();
  const std::vector<StepPart> parts = paused_ || failure_ ? std::vector<StepPart>() : scheduler_.next_step();
  if (scheduler_.preemptions() > preemptions)
    options_.log(LogLevel::info, "out of pages: " + std::to_string(scheduler_.preemptions() - preemptions) +
                                     " requests wait to be computed again");
  if (!parts.empty()) return run_step(parts, lock);
  if (worked) return;
  const auto until = next_deadline();
  lock.unlock();
  wake_->wait(until);
  lock.lock();
}

// The oldest job, if there is one: steps and jobs take turns.
bool Engine::run_job(std::unique_lock<std::mutex>& lock) {
  if (jobs_.empty()) return false;
  Job* const job = jobs_.front();
  jobs_.pop_front();
  lock.unlock();
  std::exception_ptr thrown;
  std::unique_ptr<Error> failure;
  try {
    (*job->run)(*executor_);
  } catch (const Error& error) {
    thrown = std::current_exception();
    const std::string_view code = error.fields().code;
    if (code == plan_format::E0802 || code == plan_format::E0805) failure = std::make_unique<Error>(error);
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  if (failure) fail(*failure);
  thrown ? job->done.set_exception(thrown) : job->done.set_value();
  return true;
}

void Engine::end_cancelled_and_late() {
  const auto now = Clock::now();
  scheduler_.for_each([&](const RequestPtr& request) {
    if (request->outbox->is_cancelled()) {
      const Error error = cancelled(*request);
      end(request, Finish::cancel, &error);
    } else if (request->deadline && *request->deadline <= now) {
      const Error error = late(*request);
      end(request, Finish::deadline, &error);
    }
  });
}

std::optional<Clock::time_point> Engine::next_deadline() const {
  std::optional<Clock::time_point> next;
  scheduler_.for_each([&](const RequestPtr& request) {
    if (request->deadline && (!next || *request->deadline < *next)) next = request->deadline;
  });
  return next;
}

// The lock is not held while the executor and the sampler work: only this thread changes what `parts` name.
void Engine::run_step(const std::vector<StepPart>& parts, std::unique_lock<std::mutex>& lock) {
  rows_.clear();
  for (const StepPart& part : parts) {
    if (!part.request->started) part.request->started = Clock::now();
    const int32_t last = static_cast<int32_t>(part.count) - 1;
    rows_.add(part.request->sequence, part.count, {&last, part.gives_token() ? 1u : 0u});
  }
  ++statistics_.steps;
  statistics_.step_rows += static_cast<uint64_t>(rows_.num_rows());
  statistics_.step_requests += parts.size();
  lock.unlock();
  std::unique_ptr<Error> failure;
  std::vector<Choice> choices;
  try {
    executor_->step(rows_.inputs());
    choices = choose_tokens(parts);
  } catch (const Error& error) {
    failure = std::make_unique<Error>(error);
  }
  lock.lock();
  if (failure) return fail(*failure);
  auto choice = choices.begin();
  for (const StepPart& part : parts) {
    const bool gives_token = part.gives_token();
    part.request->sequence.position += part.count;
    if (gives_token) take_token(part.request, *choice++);
  }
}

// In the order of the parts that give one.
std::vector<Engine::Choice> Engine::choose_tokens(const std::vector<StepPart>& parts) {
  std::vector<Choice> choices;
  if (rows_.num_logit_rows() == 0) return choices;
  const StepOutputs outputs = read_outputs(*executor_, rows_.num_logit_rows(), limits().vocabulary);
  for (const StepPart& part : parts)
    if (part.gives_token()) {
      const auto row = static_cast<int64_t>(choices.size());
      choices.push_back(choose(*part.request, outputs.token(row), outputs.logits(row)));
    }
  return choices;
}

Engine::Choice Engine::choose(const Request& request, int32_t device_token, Logits logits) const {
  if (!all_finite(logits)) return {.error = not_finite(request, logits)};
  const GenerateParams& params = request.params;
  std::vector<int32_t> forbidden;
  if (request.num_generated() < params.min_new_tokens) forbidden = ending_ids(params);
  const bool on_device = params.is_greedy() && forbidden.empty();
  const SampleSettings settings{params.temperature, params.top_p, params.top_k, params.seed};
  const auto position = static_cast<uint64_t>(request.sequence.length());
  Choice choice{.token = on_device ? device_token : sample_token(logits, settings, position, forbidden),
                .on_device = on_device};
  if (params.num_logprobs > 0) choice.logprobs = token_logprobs(logits, choice.token, params.num_logprobs);
  return choice;
}

std::vector<int32_t> Engine::ending_ids(const GenerateParams& params) const {
  std::vector<int32_t> ids = params.stop_ids;
  if (!params.ignore_eos)
    std::ranges::copy_if(limits().eos_ids, std::back_inserter(ids),
                         [this](int32_t id) { return id < limits().vocabulary; });
  return ids;
}

bool Engine::ends_answer(const GenerateParams& params, int32_t token) const {
  const auto holds = [token](const auto& ids) { return std::ranges::find(ids, token) != ids.end(); };
  return holds(params.stop_ids) || (!params.ignore_eos && holds(limits().eos_ids));
}

// A cancel that came during the step counts: its token is not delivered.
void Engine::take_token(const RequestPtr& request, const Choice& choice) {
  if (request->outbox->is_cancelled()) return;
  if (choice.error) return end(request, Finish::error, &*choice.error);
  Sequence& sequence = request->sequence;
  sequence.tokens.push_back(choice.token);
  sequence.token_on_device = choice.on_device;
  if (!request->first_token) request->first_token = Clock::now();
  delivery_.post_token(request->outbox, choice.token, choice.logprobs ? &*choice.logprobs : nullptr);
  if (ends_answer(request->params, choice.token))
    end(request, Finish::stop);
  else if (request->num_generated() >= request->params.max_new_tokens || sequence.length() >= limits().context)
    end(request, Finish::length);
}

void Engine::end(const RequestPtr& request, Finish finish, const Error* error) {
  scheduler_.end(request);
  Ending ending{.finish = finish,
                .error = error ? std::make_shared<Error>(*error) : nullptr,
                .num_tokens = request->num_generated(),
                .preemptions = request->preemptions};
  const auto now = Clock::now(), started = request->started.value_or(now), first = request->first_token.value_or(now);
  ending.queue_ns = nanoseconds(request->submitted, started);
  ending.prefill_ns = nanoseconds(started, first);
  ending.decode_ns = nanoseconds(first, now);
  statistics_.count(ending);
  if (finish == Finish::error) options_.log(LogLevel::warning, request->params.name() + " failed: " + error->json());
  delivery_.post_ending(request->outbox, std::move(ending));
}

void Engine::end_all(const Error& error, Finish finish) {
  scheduler_.for_each([&](const RequestPtr& request) { end(request, finish, &error); });
}

void Engine::fail(const Error& error) {
  options_.log(LogLevel::error, "a step failed, the engine serves no more: " + error.json());
  failure_ = std::make_unique<Error>(error);
  end_all(error, Finish::error);
}

}  // namespace dsv41c
