#include "runner/serve.h"

#include <unistd.h>

#include <filesystem>

#include "base/log.h"
#include "base/units.h"
#include "runner/fault.h"
#include "runner/progress.h"
#include "runner/stop_signal.h"

namespace nightsweep {

namespace {

// Turns counters into what people see, once a second into the queue as well.
class Observer {
 public:
  Observer(Queue& queue, const Engine& engine, const ServeOptions& options)
      : queue_(queue), engine_(engine), line_(ProgressLine::style_for(options.quiet)) {
    if (options.batch) {
      if (auto batch = queue.batch(*options.batch)) before_ = batch->counts;
    }
  }

  void operator()(const WorkerCounters& counters) {
    rate_.add(counters.since_start_s, static_cast<double>(counters.completion_tokens));
    ProgressState state;
    state.answered = before_.completed + counters.answered;
    state.failed = before_.failed + counters.failed;
    state.total = before_.total;
    state.in_flight = counters.sequences_in_flight;
    state.tokens_per_s = rate_.per_second();
    const EngineStats stats = engine_.stats();
    state.disk_share = disk_share(stats);
    state.link_share = link_share(stats);
    auto finished = static_cast<double>(counters.answered + counters.failed);
    if (counters.since_start_s > 0) state.jobs_per_s = finished / counters.since_start_s;
    // An estimate from the very first to finish would be absurd. The longest lines go first, so
    // what is left goes faster than this says.
    constexpr double kSoonest = 3;
    if (before_.total > 0 && counters.since_start_s > kSoonest && finished > 0 &&
        finished >= static_cast<double>(counters.jobs_in_flight)) {
      auto left = static_cast<double>(before_.total - before_.finished()) - finished;
      state.left_s = left / state.jobs_per_s;
    }
    line_.show(state);
    last_state_ = state;
    constexpr double kReportEvery = 1.0;
    if (counters.since_start_s - last_report_s_ >= kReportEvery) {
      last_report_s_ = counters.since_start_s;
      queue_.report_progress(progress_json(state).dump());
    }
  }

  // Nothing is in flight any more; the rates of the past stay for estimates.
  void end() {
    last_state_.in_flight = 0;
    last_state_.tokens_per_s = 0;
    last_state_.left_s = -1;
    queue_.report_progress(progress_json(last_state_).dump());
  }

 private:
  Queue& queue_;
  const Engine& engine_;
  ProgressLine line_;
  BatchCounts before_;
  RateMeter rate_;
  ProgressState last_state_;
  double last_report_s_ = -1;
};

}  // namespace

ModelServer::ModelServer(
    const PromptModel& model,
    const CommonOptions& options,
    uint32_t most_kv_pages)
    : model_(model),
      kv_type_(kv_type_name(options.kv_type)),
      engine_(open_engine(model.gguf(), options, most_kv_pages)),
      maker_(model.maker_for(std::min(model.context_tokens(), engine_->context_tokens()))),
      energy_(engine_->device().pci_address()) {
  for (const std::string& note : energy_.notes())
    log_debug("energy: {}", note);
}

Worker::End ModelServer::serve(Queue& queue, const ServeOptions& options) {
  WorkerOptions worker_options;
  worker_options.claim = options.claim;
  worker_options.model_name = std::filesystem::path(path()).stem().string();
  worker_options.model_fingerprint = model_.gguf()->fingerprint();
  worker_options.model_file = path();
  worker_options.ends_when_idle = options.ends_when_idle;
  worker_options.joules = [this] { return energy_.joules(); };
  worker_options.fault = FaultPlan::from_environment();
  Worker worker(queue, *engine_, maker_, std::move(worker_options));
  Observer observer(queue, *engine_, options);
  Worker::End end = worker.run(
      [&] { return StopSignal::instance().requested() || (options.leaves && options.leaves()); },
      [&](const WorkerCounters& counters) {
        observer(counters);
        if (options.on_tick) options.on_tick(counters, engine_->stats());
      });
  observer.end();
  counters_ = worker.counters();
  return end;
}

std::string ModelServer::report() const {
  EngineStats stats = engine_->stats();
  auto rate = [](uint64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  std::string text = format(
      "{} answered, {} failed in {}\n", counters_.answered, counters_.failed,
      duration_text(counters_.since_start_s));
  text += format(
      "{} prompt tokens, {} generated: {:.1f} tokens/s over {} sweeps ({:.1f} generated a sweep)\n",
      counters_.prompt_tokens, counters_.completion_tokens,
      rate(counters_.completion_tokens, counters_.step_s), counters_.steps,
      rate(counters_.completion_tokens, static_cast<double>(counters_.steps)));
  if (stats.shared_tokens > 0) {
    text += format("{} prompt tokens were not computed: others begin alike\n", stats.shared_tokens);
  }
  text += format("{}\n", stream_text(stats));
  if (counters_.energy_j >= 0 && counters_.completion_tokens > 0) {
    text += format(
        "{:.2f} J a generated token: {}\n",
        counters_.energy_j / static_cast<double>(counters_.completion_tokens),
        energy_.description());
  }
  text += format(
      "{}, KV {}; queue {:.1f}% of the time", device_text(), kv_type_,
      counters_.since_start_s > 0 ? 100 * counters_.save_s / counters_.since_start_s : 0.0);
  if (stats.evictions > 0) text += format("; {} evictions from the KV cache", stats.evictions);
  return text;
}

WorkerInfo worker_info(const CommonOptions& options, const std::string& model) {
  WorkerInfo info;
  info.pid = ::getpid();
  info.model = model;
  info.device = device_name(options);
  return info;
}

}  // namespace nightsweep
