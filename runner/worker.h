// Worker: jobs of the queue through one engine.
//
// The loop tops the engine up with claimed jobs, makes a step, and saves: completions and
// checkpoints in one transaction, at least every second or every step where steps are slower, and
// soon after a job's first token: until something of it is saved, a death of this process is blamed
// on it. What a cancel or an expiry stops is out of the engine at the next step.
// A job whose choices are all done is completed; a job that cannot be done by this model gets an
// error result, and its neighbours never notice.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "jobs/job.h"
#include "queue/queue.h"
#include "runner/fault.h"
#include "runner/request.h"
#include "runner/sweep_log.h"

namespace nightsweep {

struct WorkerOptions {
  // Jobs for this engine; the request has all but batch and model.
  std::function<ClaimOutcome(ClaimRequest request)> claim;
  std::string model_name;         // in answers to lines that name no model
  std::string model_fingerprint;  // in answers
  std::string model_file;         // in the rows of sweeps
  bool ends_when_idle = true;     // else waits for jobs until it is stopped
  double save_every_s = 1.0;
  double poll_every_s = 0.5;  // idle: look for jobs
  FaultPlan fault;
  double sweep_row_every_s = SweepLog::kRowEvery;
  // Joules that the machine has used since some moment; none, or nullopt: not measured.
  std::function<std::optional<double>()> joules;
  double energy_look_every_s = 1;  // a look at a GPU takes milliseconds
};

// What a worker has done since it began.
struct WorkerCounters {
  uint64_t answered = 0;
  uint64_t failed = 0;  // ended in an error result
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;  // generated here, not resumed
  uint64_t steps = 0;
  uint64_t jobs_in_flight = 0;
  uint64_t sequences_in_flight = 0;
  double step_s = 0;  // in steps
  double save_s = 0;  // in transactions of the queue
  double since_start_s = 0;
  double energy_j = -1;  // used by the machine during steps; below 0: not measured

  // Those that only grow.
  void add(const WorkerCounters& other) {
    answered += other.answered;
    failed += other.failed;
    prompt_tokens += other.prompt_tokens;
    completion_tokens += other.completion_tokens;
    steps += other.steps;
    step_s += other.step_s;
    save_s += other.save_s;
    if (other.energy_j >= 0) energy_j = std::max(energy_j, 0.0) + other.energy_j;
  }
};

class Worker {
 public:
  enum class End { idle, stopped };

  // Everything it is given must outlive it.
  Worker(Queue& queue, Engine& engine, const RequestMaker& maker, WorkerOptions options);
  ~Worker();

  // Until stop() is true (looked at between steps) or, with ends_when_idle, nothing is left. Then
  // what was finished is saved and the rest is back in the queue with its checkpoint. Failures of
  // queue and engine are thrown after the same, as far as it still works.
  // `tick` is called about ten times a second while there is work, else at every poll.
  End run(
      const std::function<bool()>& stop,
      const std::function<void(const WorkerCounters&)>& tick);

  const WorkerCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct ActiveJob;
  struct Place {
    ActiveJob* job;
    size_t choice;
  };

  End loop(
      const std::function<bool()>& stop,
      const std::function<void(const WorkerCounters&)>& tick);
  bool top_up();
  void start(ClaimedJob claimed);
  void absorb(StepReport& report);
  void begin_energy();
  void share_energy(const StepReport& report);
  void look_at_energy();
  void end_sweeps();
  SweepLog::Totals sweep_totals() const;
  void finish_choice(SequenceResult result);
  void complete(ActiveJob& job);
  void fail_job(const ActiveJob& job, const ApiError& error);
  void fail_claim(const Claim& claim, const ApiError& error);
  void drop(int64_t job_id);
  void save(bool with_checkpoints);
  bool wants_early_save(double since_save_s) const;
  bool has_unproven(bool suspects_only) const;
  void drop_stopped();
  void release_all();
  double elapsed_s() const;

  Queue& queue_;
  Engine& engine_;
  const RequestMaker& maker_;
  WorkerOptions options_;
  std::string identity_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_save_ = started_;
  uint64_t next_handle_ = 1;
  std::unordered_map<int64_t, std::unique_ptr<ActiveJob>> active_;  // by job
  std::unordered_map<uint64_t, Place> places_;                      // by handle
  std::vector<Completion> completions_;                             // not yet saved
  WorkerCounters counters_;
  SweepLog sweep_log_;
  std::optional<double> last_joules_;  // at the last look; nullopt: not measured
  Clock::time_point last_energy_look_;
  uint64_t rows_since_look_ = 0;
  double joules_a_row_ = 0;  // between the last two looks
  bool said_other_identity_ = false;
};

}  // namespace nightsweep
