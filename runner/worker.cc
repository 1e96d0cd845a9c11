#include "runner/worker.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "jobs/jsonl.h"
#include "kernels/device_fault.h"
#include "runner/checkpoint.h"

namespace nightsweep {

namespace {

// Claims are transactions: several jobs share one, some of which wait in the engine for a place.
// Not too many, since a crash is blamed on all of them.
constexpr uint32_t kFewestClaimed = 8;
constexpr uint32_t kMostClaimed = 64;
// Completions wait for the next save; no more than these.
constexpr size_t kMostPending = 512;
constexpr double kTickEvery = 0.1;
constexpr double kEarlySaveEvery = 0.1;
constexpr int kUnansweredStatus = 500;

ApiError server_error(std::string message, std::string code) {
  ApiError error;
  error.message = std::move(message);
  error.type = "server_error";
  error.code = std::move(code);
  return error;
}

// Prompt tokens that nobody computed for this job. The choices of a prompt stand together.
uint64_t cached_tokens(const std::vector<SequenceResult>& choices, size_t n_prompts) {
  uint64_t cached = 0;
  const size_t n_each = choices.size() / n_prompts;
  for (size_t first = 0; first < choices.size(); first += n_each) {
    uint64_t least = choices[first].n_shared_tokens;
    for (size_t i = 1; i < n_each; ++i)
      least = std::min(least, choices[first + i].n_shared_tokens);
    cached += least;
  }
  return cached;
}

}  // namespace

struct Worker::ActiveJob {
  ClaimedJob claimed;
  Job job;
  PromptTokens prompts;
  std::vector<uint64_t> handles;        // (choices)
  std::vector<TokenIds> tokens;         // (choices) so far, to checkpoint
  std::vector<SequenceResult> results;  // (choices) those that are finished
  size_t n_left = 0;
  uint64_t n_resumed = 0;   // tokens that came with the checkpoint
  bool is_changed = false;  // since the last checkpoint
  bool is_proven = false;   // something of it was saved since its claim
  uint64_t sweeps = 0;
  uint64_t last_step = 0;
  double queued_s = 0;
  double claimed_at_s = 0;
  double first_token_s = -1;  // from the claim
  double energy_j = 0;
  uint64_t rows_since_look = 0;  // at the energy
  std::optional<ApiError> error;
};

Worker::Worker(Queue& queue, Engine& engine, const RequestMaker& maker, WorkerOptions options)
    : queue_(queue),
      engine_(engine),
      maker_(maker),
      options_(std::move(options)),
      identity_(engine.identity()),
      sweep_log_(queue, engine, options_.model_file, options_.sweep_row_every_s) {}

Worker::~Worker() = default;

double Worker::elapsed_s() const {
  return seconds_since(started_);
}

Worker::End Worker::run(
    const std::function<bool()>& stop,
    const std::function<void(const WorkerCounters&)>& tick) {
  try {
    End end = loop(stop, tick);
    save(true);
    release_all();
    end_sweeps();
    return end;
  } catch (const Error& error) {
    // What was finished goes to disk and the rest back to the queue if the queue still works; if
    // not, the next worker recovers it.
    log_debug("giving back what was claimed, after: {}", error.what());
    try {
      save(true);
      release_all();
      end_sweeps();
    } catch (const Error& second) {
      log_debug("that failed too: {}", second.what());
    }
    throw;
  }
}

Worker::End Worker::loop(
    const std::function<bool()>& stop,
    const std::function<void(const WorkerCounters&)>& tick) {
  double last_tick_s = -1;
  bool is_working = false;
  for (;;) {
    if (stop()) return End::stopped;
    bool got_jobs = top_up();
    bool was_working = std::exchange(is_working, engine_.n_active() > 0);
    if (is_working) {
      if (!was_working) begin_energy();
      sweep_log_.before_step(sweep_totals());
      if (options_.fault.loses_device_at(counters_.steps + 1)) lose_device(engine_.device());
      StepReport report = engine_.step();
      ++counters_.steps;
      if (options_.fault.crashes_at(counters_.steps)) die_at_once();
      absorb(report);
      sweep_log_.after_step(sweep_totals());
    } else {
      end_sweeps();
    }
    double since_save_s = seconds_since(last_save_);
    if (queue_.has_changed()) drop_stopped();
    if (since_save_s >= options_.save_every_s || wants_early_save(since_save_s)) {
      save(true);
    } else if ((!is_working && !got_jobs) || completions_.size() >= kMostPending) {
      save(false);
    }
    counters_.jobs_in_flight = active_.size();
    counters_.sequences_in_flight = places_.size();
    counters_.since_start_s = elapsed_s();
    if (counters_.since_start_s - last_tick_s >= kTickEvery || !is_working) {
      last_tick_s = counters_.since_start_s;
      tick(counters_);
    }
    if (is_working || got_jobs) continue;
    if (options_.ends_when_idle) return End::idle;
    // Short naps, so that a stop is not kept waiting.
    constexpr double kNap = 0.05;
    for (double left = options_.poll_every_s; left > 0 && !stop(); left -= kNap)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kNap)));
  }
}

// True: at least one job was taken.
bool Worker::top_up() {
  bool any = false;
  while (engine_.wants_more()) {
    // Suspects stay among themselves until they are cleared.
    if (has_unproven(true)) return any;
    auto n_active = static_cast<uint32_t>(engine_.n_active());
    uint32_t places = engine_.stats().max_sequences;
    uint32_t free_places = places > n_active ? places - n_active : 0;
    ClaimOutcome claimed = options_.claim(
        {.n = std::clamp(free_places, kFewestClaimed, kMostClaimed),
         .n_in_flight = active_.size(),
         .has_unproven = has_unproven(false)});
    if (claimed.blocked == ClaimOutcome::Blocked::until_empty) {
      // One that has killed a worker is to run alone: the others wait, with their checkpoints.
      save(true);
      release_all();
      continue;
    }
    if (claimed.jobs.empty()) return any;
    any = true;
    for (ClaimedJob& job : claimed.jobs)
      start(std::move(job));
    // A run of jobs that all fail at once must not keep the others from being saved.
    if (completions_.size() >= kMostPending) return any;
  }
  return any;
}

bool Worker::has_unproven(bool suspects_only) const {
  return std::any_of(active_.begin(), active_.end(), [&](const auto& entry) {
    const ActiveJob& job = *entry.second;
    return !job.is_proven && (!suspects_only || job.claimed.is_suspect);
  });
}

// Until something of a job is saved, a death of this process is blamed on it. So the first tokens
// of suspects, and of the first jobs, are saved at once, those of later ones soon.
bool Worker::wants_early_save(double since_save_s) const {
  bool any_proven = false;
  bool any_gain = false;
  bool any_suspect_gain = false;
  for (const auto& [id, job] : active_) {
    any_proven = any_proven || job->is_proven;
    bool has_gained = !job->is_proven && job->is_changed;
    any_gain = any_gain || has_gained;
    any_suspect_gain = any_suspect_gain || (has_gained && job->claimed.is_suspect);
  }
  return any_suspect_gain || (any_gain && (!any_proven || since_save_s >= kEarlySaveEvery));
}

void Worker::start(ClaimedJob claimed) {
  Claim claim = claimed.claim;
  auto active = std::make_unique<ActiveJob>();
  active->claimed = std::move(claimed);
  active->queued_s = static_cast<double>(unix_ms() - active->claimed.submitted_ms) / 1000;
  active->claimed_at_s = elapsed_s();
  try {
    active->job = job_from_text(active->claimed.request);
  } catch (const std::exception& error) {
    log_error("job {}: the stored request cannot be read: {}", claim.job, error.what());
    fail_claim(claim, server_error("the stored request cannot be read", "damaged_request"));
    return;
  }
  auto made = maker_.prompts(active->job, active->claimed.submitted_ms / 1000);
  if (const auto* error = std::get_if<ApiError>(&made)) {
    fail_job(*active, *error);
    return;
  }
  active->prompts = std::move(std::get<PromptTokens>(made));
  size_t n = n_choices(active->job, active->prompts);
  active->tokens.resize(n);
  active->results.resize(n);
  active->n_left = n;
  if (!active->claimed.checkpoint.empty()) {
    if (active->claimed.checkpoint_identity == identity_) {
      auto resumed =
          checkpoint_from_text(active->claimed.checkpoint, n, engine_.tokenizer().n_tokens());
      if (resumed) {
        active->tokens = std::move(*resumed);
      } else {
        log_warning(
            "{}: its checkpoint cannot be read; the answer starts again from its prompt",
            active->claimed.custom_id);
      }
    } else if (!std::exchange(said_other_identity_, true)) {
      log_warning(
          "checkpoints of {} belong to {}, this is {}: those answers start again from their "
          "prompts",
          active->claimed.batch, active->claimed.checkpoint_identity, identity_);
    }
    // It was made for another engine, or read: it is not needed any more.
    active->claimed.checkpoint.clear();
  }
  ActiveJob* job = active.get();
  active_[claim.job] = std::move(active);
  for (const TokenIds& prompt : job->prompts)
    counters_.prompt_tokens += prompt.size();
  for (size_t choice = 0; choice < n; ++choice) {
    job->n_resumed += job->tokens[choice].size();
    SequenceRequest request = maker_.sequence(job->job, job->prompts, choice, job->tokens[choice]);
    request.handle = next_handle_++;
    job->handles.push_back(request.handle);
    places_[request.handle] = {.job = job, .choice = choice};
    engine_.submit(std::move(request));
  }
}

void Worker::absorb(StepReport& report) {
  counters_.step_s += report.seconds;
  for (size_t i = 0; i < report.members.size(); ++i) {
    auto place = places_.find(report.members[i]);
    if (place == places_.end()) continue;
    ActiveJob& job = *place->second.job;
    job.rows_since_look += report.member_rows[i];
    rows_since_look_ += report.member_rows[i];
    if (options_.fault.is_poison(job.claimed.custom_id)) die_at_once();
    if (job.last_step != counters_.steps) {
      job.last_step = counters_.steps;
      ++job.sweeps;
    }
  }
  share_energy(report);
  counters_.completion_tokens += report.new_tokens.size();
  for (const auto& [handle, token] : report.new_tokens) {
    auto place = places_.find(handle);
    if (place == places_.end()) continue;
    ActiveJob& job = *place->second.job;
    job.tokens[place->second.choice].push_back(token);
    job.is_changed = true;
    if (job.first_token_s < 0) job.first_token_s = elapsed_s() - job.claimed_at_s;
  }
  for (SequenceResult& result : report.finished)
    finish_choice(std::move(result));
}

// What was used while nothing was at work is nobody's.
void Worker::begin_energy() {
  last_joules_ = options_.joules ? options_.joules() : std::nullopt;
  last_energy_look_ = Clock::now();
  if (last_joules_) counters_.energy_j = std::max(counters_.energy_j, 0.0);
}

// By rows: a token of a prompt and one of an answer cost the same in a sweep.
void Worker::share_energy(const StepReport& report) {
  const std::chrono::duration<double> since = Clock::now() - last_energy_look_;
  // The first to leave want a price too.
  const bool lacks_price = joules_a_row_ == 0 && !report.finished.empty();
  if (lacks_price || since.count() >= options_.energy_look_every_s) look_at_energy();
}

void Worker::look_at_energy() {
  if (!last_joules_ || rows_since_look_ == 0) return;
  const std::optional<double> now = options_.joules();
  if (!now) return;
  const double used = *now - *std::exchange(last_joules_, now);
  last_energy_look_ = Clock::now();
  joules_a_row_ = used / static_cast<double>(std::exchange(rows_since_look_, 0));
  counters_.energy_j += used;
  for (auto& [id, job] : active_) {
    job->energy_j += joules_a_row_ * static_cast<double>(std::exchange(job->rows_since_look, 0));
  }
}

// Nothing is at work any more.
void Worker::end_sweeps() {
  look_at_energy();
  sweep_log_.flush(sweep_totals());
}

SweepLog::Totals Worker::sweep_totals() const {
  return {
      .new_tokens = counters_.completion_tokens,
      .queue_s = counters_.save_s,
      .energy_j = counters_.energy_j};
}

void Worker::finish_choice(SequenceResult result) {
  auto found = places_.find(result.handle);
  if (found == places_.end()) return;
  Place place = found->second;
  places_.erase(found);
  ActiveJob& job = *place.job;
  if (result.reason == FinishReason::error) {
    job.error = server_error(result.error, "engine_error");
  } else {
    job.results[place.choice] = std::move(result);
  }
  --job.n_left;
  if (job.error) {
    fail_job(job, *job.error);
    drop(job.claimed.claim.job);
  } else if (job.n_left == 0) {
    complete(job);
    drop(job.claimed.claim.job);
  }
}

void Worker::complete(ActiveJob& job) {
  Answer answer;
  answer.choices = maker_.choices(job.job, job.prompts, job.results);
  for (const TokenIds& prompt : job.prompts)
    answer.usage.prompt_tokens += prompt.size();
  Timings& timings = answer.timings;
  for (const SequenceResult& result : job.results) {
    answer.usage.completion_tokens += result.n_answer_tokens;
    timings.prefill_s = std::max(timings.prefill_s, result.prefill_s);
    timings.decode_s = std::max(timings.decode_s, result.decode_s);
  }
  answer.usage.cached_tokens = cached_tokens(job.results, job.prompts.size());
  timings.queued_s = std::max(job.queued_s, 0.0);
  timings.first_token_s = std::max(job.first_token_s, 0.0);
  timings.sweeps = job.sweeps;
  timings.attempts = job.claimed.claim.attempt;
  uint64_t generated =
      answer.usage.completion_tokens - std::min(answer.usage.completion_tokens, job.n_resumed);
  double taken_s = elapsed_s() - job.claimed_at_s;
  timings.tokens_per_s = taken_s > 0 ? static_cast<double>(generated) / taken_s : 0;
  // Its last rows, if nobody has looked since, at the price of those before.
  if (last_joules_)
    timings.energy_j = job.energy_j + joules_a_row_ * static_cast<double>(job.rows_since_look);
  answer.seed = job.job.parameters.seed;
  answer.model = job.job.model.empty() ? options_.model_name : job.job.model;
  answer.model_fingerprint = options_.model_fingerprint;
  answer.created_unix_s = unix_ms() / 1000;

  Completion completion;
  completion.claim = job.claimed.claim;
  completion.result.status_code = 200;
  completion.result.body =
      answer_body(job.job, answer, format("req_{}", job.claimed.claim.job)).dump();
  completion.result.nightsweep = timings_object(answer, job.job.ignored).dump();
  completion.result.prompt_tokens = answer.usage.prompt_tokens;
  completion.result.completion_tokens = answer.usage.completion_tokens;
  completions_.push_back(std::move(completion));
  ++counters_.answered;
}

void Worker::fail_job(const ActiveJob& job, const ApiError& error) {
  log_debug("{}: {}", job.claimed.custom_id, error.message);
  fail_claim(job.claimed.claim, error);
}

void Worker::fail_claim(const Claim& claim, const ApiError& error) {
  Completion completion;
  completion.claim = claim;
  completion.result.status_code = error.status_code;
  completion.result.body = error_body(error).dump();
  completions_.push_back(std::move(completion));
  ++counters_.failed;
}

// Forgets a job; its sequences leave the engine.
void Worker::drop(int64_t job_id) {
  auto found = active_.find(job_id);
  if (found == active_.end()) return;
  for (uint64_t handle : found->second->handles) {
    if (places_.erase(handle) > 0) engine_.cancel(handle);
  }
  active_.erase(found);
}

void Worker::save(bool with_checkpoints) {
  Clock::time_point begun = Clock::now();
  std::vector<Checkpoint> checkpoints;
  if (with_checkpoints) {
    last_save_ = begun;
    for (auto& [id, job] : active_) {
      if (!job->is_changed) continue;
      checkpoints.push_back(
          {.claim = job->claimed.claim,
           .identity = identity_,
           .data = checkpoint_to_text(job->tokens)});
    }
  }
  if (checkpoints.empty() && completions_.empty()) return;
  std::vector<Claim> stale = queue_.save(checkpoints, completions_);
  completions_.clear();
  if (with_checkpoints) {
    for (auto& [id, job] : active_) {
      job->is_proven = job->is_proven || job->is_changed;
      job->is_changed = false;
    }
  }
  for (const Claim& claim : stale) {
    log_warning("job {} attempt {} is not ours any more: dropped", claim.job, claim.attempt);
    drop(claim.job);
  }
  counters_.save_s += seconds_since(begun);
}

void Worker::drop_stopped() {
  std::vector<Claim> claims;
  for (const auto& [id, job] : active_)
    claims.push_back(job->claimed.claim);
  if (claims.empty()) return;
  for (const StoppedClaim& stopped : queue_.stopped(claims)) {
    Completion completion;
    completion.claim = stopped.claim;
    completion.result.status_code = kUnansweredStatus;
    completion.result.error_code = stopped.error_code;
    completion.result.error_message = stopped.error_code == "expired"
                                          ? "the batch expired before this request was answered"
                                          : "cancelled before this request was answered";
    completions_.push_back(std::move(completion));
    ++counters_.failed;
    drop(stopped.claim.job);
  }
  // Whoever waits for the cancel sees its end at once.
  if (!completions_.empty()) save(false);
}

void Worker::release_all() {
  std::vector<Claim> claims;
  for (const auto& [id, job] : active_)
    claims.push_back(job->claimed.claim);
  if (claims.empty()) return;
  queue_.release(claims);
  while (!active_.empty())
    drop(active_.begin()->first);
}

}  // namespace nightsweep
