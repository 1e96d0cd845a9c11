#include <unistd.h>

#include <chrono>
#include <ctime>

#include "base/clock.h"
#include "base/units.h"
#include "runner/command.h"
#include "runner/night.h"
#include "runner/output.h"
#include "runner/results_writer.h"
#include "runner/stop_signal.h"

namespace nightsweep {

namespace {

constexpr uint32_t kMostBatches = 1000;

struct Snapshot {
  std::optional<WorkerInfo> worker;  // only one that is alive
  Json progress;                     // the worker's own, or null
  std::vector<BatchInfo> batches;    // newest first
  std::optional<Night> night;
};

// `queue`: null where there is none yet.
Snapshot take_snapshot(Queue* queue_or_null, const std::string& batch) {
  Snapshot snapshot;
  if (queue_or_null == nullptr) return snapshot;
  Queue& queue = *queue_or_null;
  snapshot.worker = queue.worker();
  if (snapshot.worker && !snapshot.worker->is_alive) snapshot.worker.reset();
  if (snapshot.worker && !snapshot.worker->progress.empty()) {
    try {
      snapshot.progress = Json::parse(snapshot.worker->progress);
    } catch (const JsonError&) {
      snapshot.progress = nullptr;  // of another version: there is still a worker
    }
  }
  if (batch.empty()) {
    snapshot.batches = queue.batches(kMostBatches);
    snapshot.night = night_of(queue.sweeps_since(unix_ms() - kNightMs));
  } else {
    snapshot.batches.push_back(require_batch(queue, batch));
  }
  return snapshot;
}

// Seconds until this batch ends if the worker goes on as it does; nullopt: unknown. Older ones
// come first.
std::optional<double> eta_s(const Snapshot& snapshot, size_t index) {
  const BatchInfo& batch = snapshot.batches[index];
  if (is_ended(batch)) return std::nullopt;
  const Json* rate = snapshot.progress.find("jobs_per_s");
  if (!snapshot.worker || rate == nullptr || !rate->is_number() || rate->as_double() <= 0) {
    return std::nullopt;
  }
  uint64_t ahead = 0;
  for (size_t i = index; i < snapshot.batches.size(); ++i)
    ahead += snapshot.batches[i].counts.total - snapshot.batches[i].counts.finished();
  return static_cast<double>(ahead) / rate->as_double();
}

Json seconds_or_null(int64_t ms) {
  return ms == 0 ? Json(nullptr) : Json(ms / 1000);
}

Json batch_json(const Snapshot& snapshot, size_t index) {
  const BatchInfo& batch = snapshot.batches[index];
  Json counts = Json::Object{};
  counts.set("total", batch.counts.total);
  counts.set("completed", batch.counts.completed);
  counts.set("failed", batch.counts.failed);
  Json usage = Json::Object{};
  usage.set("input_tokens", batch.prompt_tokens);
  usage.set("output_tokens", batch.completion_tokens);
  usage.set("total_tokens", batch.prompt_tokens + batch.completion_tokens);
  Json json = Json::Object{};
  json.set("id", batch.id);
  json.set("object", "batch");
  json.set("name", batch.name);
  json.set("status", batch.status);
  json.set("model", batch.model.empty() ? Json(nullptr) : Json(batch.model));
  json.set("endpoint", batch.endpoint);
  json.set("created_at", batch.created_ms / 1000);
  json.set("in_progress_at", seconds_or_null(batch.started_ms));
  json.set("expires_at", seconds_or_null(batch.expires_ms));
  json.set("cancelling_at", seconds_or_null(batch.cancelling_ms));
  // Each end has its own field, as OpenAI's object has it.
  for (const char* end : {"completed", "cancelled", "expired"})
    json.set(format("{}_at", end), seconds_or_null(batch.status == end ? batch.ended_ms : 0));
  json.set("priority", static_cast<int64_t>(batch.priority));
  json.set("request_counts", std::move(counts));
  json.set("running", batch.counts.running);
  json.set("usage", std::move(usage));
  auto eta = eta_s(snapshot, index);
  json.set("eta_s", eta ? Json(*eta) : Json(nullptr));
  return json;
}

Json status_json(const Snapshot& snapshot) {
  Json worker = nullptr;
  if (snapshot.worker) {
    worker.set("pid", snapshot.worker->pid);
    worker.set("host", snapshot.worker->host);
    worker.set("model", snapshot.worker->model);
    worker.set("device", snapshot.worker->device);
    worker.set("started_at", snapshot.worker->started_ms / 1000);
    worker.set("seen_at", snapshot.worker->seen_ms / 1000);
    worker.set("progress", snapshot.progress);
  }
  Json::Array batches;
  for (size_t i = 0; i < snapshot.batches.size(); ++i)
    batches.push_back(batch_json(snapshot, i));
  Json json = Json::Object{};
  json.set("worker", std::move(worker));
  json.set("batches", std::move(batches));
  json.set("night", snapshot.night ? night_json(*snapshot.night) : Json(nullptr));
  return json;
}

std::string time_text(int64_t ms) {
  auto time = static_cast<std::time_t>(ms / 1000);
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return "?";
  char text[32];
  size_t n = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return {text, n};
}

// The first characters of a text that has too many; whole UTF-8 characters.
std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "~";
}

std::string status_table(const Snapshot& snapshot) {
  std::string text;
  if (snapshot.worker) {
    text = format(
        "worker {} on {}: {}", snapshot.worker->pid, snapshot.worker->device,
        snapshot.worker->model.empty() ? "any model" : snapshot.worker->model);
    const Json* waiting = snapshot.progress.find("waiting");
    const Json* rate = snapshot.progress.find("tokens_per_s");
    if (waiting != nullptr && waiting->is_string()) {
      text += format(", waiting: {}", waiting->as_string());
    } else if (rate != nullptr && rate->is_number()) {
      text += format(", {:.1f} tokens/s", rate->as_double());
    }
    text += "\n";
  } else {
    text = "no worker (start one with: nightsweep worker)\n";
  }
  if (snapshot.night) text += night_text(*snapshot.night, time_text(snapshot.night->begin_ms));
  if (snapshot.batches.empty()) return text + "no batches\n";
  text += format(
      "{:<30} {:<20} {:<12} {:>15} {:>7} {:>12} {:<16} {}\n", "BATCH", "NAME", "STATUS", "DONE",
      "FAILED", "TOKENS", "CREATED", "LEFT");
  for (size_t i = 0; i < snapshot.batches.size(); ++i) {
    const BatchInfo& batch = snapshot.batches[i];
    auto eta = eta_s(snapshot, i);
    text += format(
        "{:<30} {:<20} {:<12} {:>15} {:>7} {:>12} {:<16} {}\n", batch.id, shortened(batch.name, 20),
        batch.status, format("{}/{}", batch.counts.finished(), batch.counts.total),
        batch.counts.failed, batch.completion_tokens, time_text(batch.created_ms),
        is_ended(batch) ? "-"
        : eta           ? duration_text(*eta)
                        : "?");
  }
  return text;
}

int status(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  std::string batch = arguments.operands().empty() ? "" : arguments.operands().front();
  // Looking at a queue does not make it.
  auto queue =
      batch.empty() ? Queue::open_existing(queue_path_of(options)) : require_queue(options);
  bool watches = arguments.has("watch");
  bool redraws = watches && !options.json && ::isatty(STDOUT_FILENO) != 0;
  if (watches) StopSignal::instance().install();
  for (;;) {
    Snapshot snapshot = take_snapshot(queue.get(), batch);
    std::string text = options.json ? status_json(snapshot).dump() + "\n" : status_table(snapshot);
    // Home, the text, and what stood below it wiped.
    Stdout().write(redraws ? "\033[H\033[2J" + text : text);
    bool has_ended = !batch.empty() && is_ended(snapshot.batches.front());
    if (!watches || has_ended || StopSignal::instance().wait_s(1.0)) return 0;
  }
}

}  // namespace

Command make_status_command() {
  return {
      .name = "status",
      .summary = "batches with their counts, rate and finish time",
      .usage = "[BATCH|last] [options]",
      .example = "nightsweep status --watch",
      .options = join(
          {{{.name = "watch", .value = "", .help = "show it again every second"}, json_option()},
           queue_options(),
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 1,
      .run = status};
}

}  // namespace nightsweep
