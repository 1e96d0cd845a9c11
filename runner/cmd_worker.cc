#include <algorithm>
#include <memory>
#include <set>

#include "base/log.h"
#include "runner/command.h"
#include "runner/results_writer.h"
#include "runner/serve.h"
#include "runner/stop_signal.h"
#include "runner/submission.h"

namespace nightsweep {

namespace {

constexpr double kPollEvery = 0.5;

class WorkerCommand {
 public:
  explicit WorkerCommand(const Invocation& invocation)
      : options_(begin_command(invocation.arguments)),
        drains_(invocation.arguments.has("drain")),
        models_(options_.models, options_.context_tokens) {
    if (!options_.model.empty()) fixed_ = &models_.open(chosen_model(options_));
  }

  int run() {
    check_device(options_);
    queue_ = Queue::open(queue_path_of(options_));
    queue_->become_worker(worker_info(options_, fixed_ != nullptr ? fixed_->ref().path : ""));
    StopSignal& stop = StopSignal::instance();
    stop.install();
    if (fixed_ != nullptr) open_server(*fixed_);
    log_info("{}: waiting for jobs", queue_->path());
    while (!stop.requested()) {
      const PromptModel* next = next_model();
      if (next != nullptr) {
        open_server(*next);
        serve();
      } else if (drains_) {
        break;
      } else {
        stop.wait_s(kPollEvery);
      }
    }
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
  // The model that the longest waiting jobs want; null: none that can be served.
  const PromptModel* next_model() {
    unserved_.clear();
    for (const std::string& name : queue_->waiting_models()) {
      if (const PromptModel* model = model_for(name)) return model;
    }
    return nullptr;
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
    server_ = std::make_unique<ModelServer>(model, options_);
  }

  void serve() {
    ServeOptions serve;
    serve.quiet = options_.quiet;
    serve.claim = [this](uint32_t n) { return claim(n); };
    // This loop waits, not the worker inside: another model's jobs may come.
    server_->serve(*queue_, serve);
    if (server_->counters().answered + server_->counters().failed > 0) {
      log_info("{}", server_->report());
    } else {
      // Jobs wait that may not be taken yet.
      StopSignal::instance().wait_s(kPollEvery);
    }
  }

  std::vector<ClaimedJob> claim(uint32_t n) {
    std::vector<ClaimedJob> jobs = claim_named(n);
    if (!jobs.empty()) return jobs;
    names_.clear();
    for (const std::string& name : queue_->waiting_models()) {
      const PromptModel* model = model_for(name);
      if (model != nullptr && model->ref().path == server_->path()) names_.push_back(name);
    }
    return claim_named(n);
  }

  std::vector<ClaimedJob> claim_named(uint32_t n) {
    for (const std::string& name : names_) {
      std::vector<ClaimedJob> jobs = queue_->claim(n, std::nullopt, name);
      if (!jobs.empty()) return jobs;
    }
    return {};
  }

  CommonOptions options_;
  bool drains_;
  PromptModels models_;
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
           engine_options(),
           queue_options(),
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 0,
      .run = worker};
}

}  // namespace nightsweep
