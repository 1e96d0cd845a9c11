#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "runner/command.h"
#include "runner/gate.h"
#include "runner/metrics.h"
#include "runner/notify.h"
#include "runner/results_writer.h"
#include "runner/serve.h"
#include "runner/stop_signal.h"
#include "runner/submission.h"

namespace nightsweep {

namespace {

constexpr double kPollEvery = 0.5;
constexpr double kHousekeepingEvery = 1;
constexpr double kMetricsEvery = 15;

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

OwnerOptions owner_options(const CommonOptions& options) {
  OwnerOptions owner;
  owner.stop_file = options.worker.stop_file.empty() ? queue_path_of(options) + ".stop"
                                                     : options.worker.stop_file;
  owner.yields_to_battery = options.worker.yield_battery;
  owner.yields_to_gpu_users = options.worker.yield_gpu && choose_device(options).cuda.has_value();
  return owner;
}

class WorkerCommand {
 public:
  explicit WorkerCommand(const Invocation& invocation)
      : options_(begin_command(invocation.arguments)),
        drains_(invocation.arguments.has("drain")),
        models_(options_.models, options_.context_tokens),
        gate_(RunWindows::parse(options_.worker.windows, "--window"), owner_options(options_)) {
    if (!options_.model.empty()) fixed_ = &models_.open(chosen_model(options_));
  }

  int run() {
    choose_device(options_);  // a device that is not here is said before any wait
    queue_ = Queue::open(queue_path_of(options_));
    queue_->become_worker(worker_info(options_, fixed_ != nullptr ? fixed_->ref().path : ""));
    StopSignal& stop = StopSignal::instance();
    stop.install();
    self_test(*open_device(options_));
    keep_house();
    if (fixed_ != nullptr && !closed_) open_server(*fixed_);
    notifier_.ready();
    log_info("{}: waiting for jobs", queue_->path());
    work(stop);
    notifier_.stopping();
    write_metrics_file({});
    if (stop.requested()) {
      log_info("stopped; what was finished is saved");
      return 0;
    }
    if (!unserved_.empty()) {
      fail(
          ErrorKind::model, "jobs are left whose model is not known here: {} (give --model FILE)",
          *unserved_.begin());
    }
    return 0;
  }

 private:
  void work(const StopSignal& stop) {
    while (!stop.requested()) {
      keep_house();
      const PromptModel* next = closed_ ? nullptr : next_model();
      if (next != nullptr) {
        open_server(*next);
        serve();
        continue;
      }
      if (closed_) {
        // The memory is somebody else's meanwhile.
        server_.reset();
      } else if (drains_ && queue_->inbox().empty()) {
        return;
      }
      tell_idle();
      notifier_.alive();
      stop.wait_s(kPollEvery);
    }
  }

  // Once a second, at work and idle: what came by SQL, what expired, whether work may go on.
  void keep_house() {
    double now = steady_s();
    if (now - last_house_s_ < kHousekeepingEvery) return;
    last_house_s_ = now;
    queue_->settle();
    for (const InboxPart& part : queue_->inbox()) {
      uint64_t n_lines = submit_inbox(*queue_, models_, fixed_, part);
      log_info("{} lines of the inbox are queued as a batch named {}", n_lines, part.name);
    }
    std::optional<std::string> closed = gate_.closed(queue_->control(), unix_ms());
    if (closed != closed_) {
      log_info("{}", closed ? "waiting: " + *closed : std::string("going on"));
    }
    closed_ = std::move(closed);
    note_waiting_models(now);
  }

  void note_waiting_models(double now) {
    std::map<std::string, double> waiting;
    for (const std::string& name : queue_->waiting_models()) {
      const PromptModel* model = model_for(name);
      if (model == nullptr || (server_ != nullptr && model->ref().path == server_->path()))
        continue;
      auto known = waits_since_s_.find(model->ref().path);
      waiting[model->ref().path] = known == waits_since_s_.end() ? now : known->second;
    }
    waits_since_s_ = std::move(waiting);
    longest_waiting_ = nullptr;
    double longest_s = options_.worker.model_wait_s;
    for (const auto& [path, since_s] : waits_since_s_) {
      if (now - since_s <= longest_s) continue;
      longest_s = now - since_s;
      longest_waiting_ = models_.find(path);
    }
  }

  // One model after the other, since loading is dear: what is loaded goes on while it has jobs,
  // until another one has waited too long. Null: none that can be served.
  const PromptModel* next_model() {
    unserved_.clear();
    if (longest_waiting_ != nullptr) return longest_waiting_;
    const PromptModel* first = nullptr;
    for (const std::string& name : queue_->waiting_models()) {
      const PromptModel* model = model_for(name);
      if (model == nullptr) continue;
      if (server_ != nullptr && model->ref().path == server_->path()) return model;
      if (first == nullptr) first = model;
    }
    return first;
  }

  // Which model serves the jobs that name `name`; null: none here.
  const PromptModel* model_for(const std::string& name) {
    // A path or a name of the table was chosen at submit; other names are the lines' own, and
    // --model decides about them.
    bool was_chosen = name.starts_with("/") || options_.models.contains(name);
    if (fixed_ != nullptr) {
      if (!was_chosen) {
        note_other_name(name);
        return fixed_;
      }
      auto ref = find_model(options_.models, name);
      return ref && ref->path == fixed_->ref().path ? fixed_ : nullptr;
    }
    const PromptModel* model = was_chosen ? models_.find(name) : nullptr;
    if (model == nullptr) {
      std::string shown = name.empty() ? "(none named)" : name;
      unserved_.insert(shown);
      if (said_unserved_.insert(shown).second) {
        log_warning(
            "jobs wait for model {}, which is not known here (give --model FILE, or name it in "
            "[models] of the configuration)",
            shown);
      }
    }
    return model;
  }

  void note_other_name(const std::string& name) {
    if (name.empty() || !said_names_.insert(name).second) return;
    log_info("jobs name model {}; {} answers them", name, fixed_->ref().path);
  }

  void open_server(const PromptModel& model) {
    if (server_ != nullptr && server_->path() == model.ref().path) return;
    names_.clear();
    server_.reset();  // two models at once need not fit
    // Of the time that reading the file takes on a slow disk.
    constexpr double kSlowestDisk = 20e6;
    constexpr double kLeastSilence = 120;
    std::error_code ignored;
    auto size_bytes = static_cast<double>(std::filesystem::file_size(model.ref().path, ignored));
    notifier_.status(format("loading {}", model.ref().path));
    notifier_.expect_silence(kLeastSilence + (ignored ? 0 : size_bytes / kSlowestDisk));
    server_ = std::make_unique<ModelServer>(model, options_);
    notifier_.end_silence();
  }

  void serve() {
    ServeOptions serve;
    serve.quiet = options_.quiet;
    serve.claim = [this](const ClaimRequest& request) { return claim(request); };
    serve.leaves = [this] { return closed_ || longest_waiting_ != nullptr; };
    serve.on_tick = [this](const WorkerCounters& counters, const EngineStats& stats) {
      tell_work(counters, stats);
      keep_house();
    };
    longest_waiting_ = nullptr;
    // This loop waits, not the worker inside: another model's jobs may come.
    server_->serve(*queue_, serve);
    const WorkerCounters& counters = server_->counters();
    before_.add(counters);
    if (counters.answered + counters.failed > 0) {
      log_info("{}", server_->report());
    } else if (!closed_ && longest_waiting_ == nullptr) {
      // Jobs wait that may not be taken yet.
      StopSignal::instance().wait_s(kPollEvery);
    }
  }

  void tell_work(const WorkerCounters& counters, const EngineStats& stats) {
    // Only a step that has been made is a sign of life.
    if (counters.steps > 0) notifier_.alive();
    notifier_.status(format(
        "{} answered, {} failed, {} sequences at work", before_.answered + counters.answered,
        before_.failed + counters.failed, counters.sequences_in_flight));
    write_metrics_file(counters, &stats);
  }

  void tell_idle() {
    std::string state = closed_ ? "waiting: " + *closed_ : "waiting for jobs";
    notifier_.status(state);
    if (state != last_idle_) {
      last_idle_ = state;
      Json progress = Json::Object{};
      progress.set("waiting", closed_ ? Json(*closed_) : Json(nullptr));
      queue_->report_progress(progress.dump());
    }
    write_metrics_file({});
  }

  void write_metrics_file(const WorkerCounters& counters, const EngineStats* stats = nullptr) {
    if (options_.worker.metrics_file.empty()) return;
    double now = steady_s();
    if (stats != nullptr && now - last_metrics_s_ < kMetricsEvery) return;
    if (stats == nullptr && now - last_metrics_s_ < kMetricsEvery &&
        !StopSignal::instance().requested() && !drains_)
      return;
    last_metrics_s_ = now;
    Metrics metrics;
    metrics.jobs = queue_->job_counts();
    metrics.counters = before_;
    metrics.counters.add(counters);
    metrics.counters.sequences_in_flight = counters.sequences_in_flight;
    metrics.is_waiting = closed_.has_value();
    if (server_ != nullptr) {
      metrics.model = server_->path();
      metrics.engine = stats != nullptr ? *stats : server_->stats();
      metrics.disk_share = disk_share(metrics.engine);
      metrics.link_share = link_share(metrics.engine);
    }
    try {
      write_metrics(options_.worker.metrics_file, metrics);
    } catch (const Error& error) {
      // Figures are no reason to stop a night's work.
      if (!std::exchange(said_no_metrics_, true)) log_warning("{}", error.what());
    }
  }

  ClaimOutcome claim(ClaimRequest request) {
    for (bool is_fresh : {false, true}) {
      if (is_fresh) find_names();
      if (names_.empty()) continue;
      request.models = names_;
      ClaimOutcome outcome = queue_->claim(request);
      if (!outcome.jobs.empty() || outcome.blocked != ClaimOutcome::Blocked::no) return outcome;
    }
    return {};
  }

  void find_names() {
    names_.clear();
    for (const std::string& name : queue_->waiting_models()) {
      const PromptModel* model = model_for(name);
      if (model != nullptr && model->ref().path == server_->path()) names_.push_back(name);
    }
  }

  CommonOptions options_;
  bool drains_;
  PromptModels models_;
  Gate gate_;
  ServiceNotifier notifier_ = ServiceNotifier::from_environment();
  WorkerCounters before_;                         // of what was served before
  std::optional<std::string> closed_;             // why work waits
  std::map<std::string, double> waits_since_s_;   // other models by file
  const PromptModel* longest_waiting_ = nullptr;  // beyond the bound; null: none
  std::string last_idle_;
  double last_house_s_ = 0;
  double last_metrics_s_ = 0;
  bool said_no_metrics_ = false;
  const PromptModel* fixed_ = nullptr;  // --model
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<ModelServer> server_;
  std::vector<std::string> names_;  // under which jobs for server_ waited when last looked at
  std::set<std::string> unserved_;  // waiting now, and no model for them
  std::set<std::string> said_unserved_;
  std::set<std::string> said_names_;
};

int worker(const Invocation& invocation) {
  return WorkerCommand(invocation).run();
}

}  // namespace

Command make_worker_command() {
  return {
      .name = "worker",
      .summary = "work through the queue until stopped, or with --drain until it is empty",
      .usage = "[--drain] [--model MODEL] [options]",
      .example = "nightsweep worker --drain --model model.gguf --ram 8GiB",
      .options = join(
          {{{.name = "drain", .value = "", .help = "end when nothing is left"}},
           worker_options(),
           engine_options(),
           queue_options(),
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 0,
      .run = worker};
}

}  // namespace nightsweep
