// One model at work: opens its engine, runs a Worker over it, shows progress, and reports.
// Shared by `run` and `worker`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "queue/queue.h"
#include "runner/energy.h"
#include "runner/model_source.h"
#include "runner/options.h"
#include "runner/worker.h"

namespace nightsweep {

struct ServeOptions {
  // Jobs for this model.
  std::function<ClaimOutcome(ClaimRequest request)> claim;
  std::optional<std::string> batch;  // progress counts this one; none: all that waits
  bool ends_when_idle = true;
  bool quiet = false;
  std::function<bool()> leaves;  // looked at between steps: end with the work saved; none: never
  std::function<void(const WorkerCounters&, const EngineStats&)> on_tick;  // about ten a second
};

class ModelServer {
 public:
  // Opens the engine. Everything given must outlive it. most_kv_pages: that its work can fill.
  ModelServer(
      const PromptModel& model,
      const CommonOptions& options,
      uint32_t most_kv_pages = UINT32_MAX);

  const std::string& path() const { return model_.ref().path; }
  std::string device_text() const { return engine_->device().description(); }
  // Until nothing is left or a stop is requested (StopSignal).
  Worker::End serve(Queue& queue, const ServeOptions& options);
  // "12 answered, ...": what serve() did the last time, over several lines.
  std::string report() const;
  const WorkerCounters& counters() const { return counters_; }
  EngineStats stats() const { return engine_->stats(); }

 private:
  const PromptModel& model_;
  const char* kv_type_;
  std::unique_ptr<Engine> engine_;
  RequestMaker maker_;
  EnergyMeter energy_;
  WorkerCounters counters_;
};

// What the queue shows of this process.
WorkerInfo worker_info(const CommonOptions& options, const std::string& model);

}  // namespace nightsweep
