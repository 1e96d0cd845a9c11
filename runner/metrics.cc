#include "runner/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"

namespace nightsweep {

namespace {

class Exposition {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void value(double value, const std::string& labels = "") {
    text_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + format(" {}\n", value);
  }
  void one(const char* name, const char* type, const char* help, double number) {
    family(name, type, help);
    value(number);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

std::string label_text(const std::string& value) {
  std::string escaped;
  for (char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string metrics_text(const Metrics& metrics) {
  Exposition text;
  text.family("nightsweep_jobs", "gauge", "Jobs in the queue by state.");
  text.value(static_cast<double>(metrics.jobs.waiting), "state=\"waiting\"");
  text.value(static_cast<double>(metrics.jobs.running), "state=\"running\"");
  text.value(static_cast<double>(metrics.jobs.completed), "state=\"completed\"");
  text.value(static_cast<double>(metrics.jobs.failed), "state=\"failed\"");
  text.one(
      "nightsweep_waiting", "gauge", "1: paused, outside its windows, or yielding to the owner.",
      metrics.is_waiting ? 1 : 0);
  text.family("nightsweep_model_loaded", "gauge", "1 for the model that is loaded.");
  if (!metrics.model.empty()) text.value(1, format("model=\"{}\"", label_text(metrics.model)));
  text.family("nightsweep_tokens_total", "counter", "Tokens since the worker's start.");
  text.value(static_cast<double>(metrics.counters.prompt_tokens), "kind=\"prompt\"");
  text.value(static_cast<double>(metrics.counters.completion_tokens), "kind=\"generated\"");
  text.one(
      "nightsweep_sweeps_total", "counter", "Sweeps of the model since the worker's start.",
      static_cast<double>(metrics.counters.steps));
  text.one("nightsweep_sweep_seconds_total", "counter", "Time in sweeps.", metrics.counters.step_s);
  text.one(
      "nightsweep_queue_seconds_total", "counter", "Time in transactions of the queue.",
      metrics.counters.save_s);
  text.one(
      "nightsweep_sequences_in_flight", "gauge", "Sequences at work.",
      static_cast<double>(metrics.counters.sequences_in_flight));
  text.family("nightsweep_weight_bytes", "gauge", "Weights of the loaded model by tier.");
  uint64_t resident = metrics.engine.stream.resident_bytes;
  text.value(static_cast<double>(resident), "tier=\"resident\"");
  text.value(
      static_cast<double>(
          metrics.engine.weight_bytes - std::min(metrics.engine.weight_bytes, resident)),
      "tier=\"streamed\"");
  text.one(
      "nightsweep_streamed_bytes_total", "counter", "Bytes read for sweeps of the loaded model.",
      static_cast<double>(
          metrics.engine.stream.streamed_bytes + metrics.engine.stream.filled_bytes));
  text.one(
      "nightsweep_limit_share", "gauge", "Stream over the disk's measured rate; 0: none.",
      metrics.disk_share);
  text.one(
      "nightsweep_link_bytes_total", "counter",
      "Bytes copied into the device's memory for sweeps of the loaded model.",
      static_cast<double>(metrics.engine.stream.copied_bytes));
  text.one(
      "nightsweep_link_share", "gauge", "Copies over the link's measured rate; 0: none.",
      metrics.link_share);
  text.one(
      "nightsweep_weight_wait_seconds_total", "counter",
      "Time in which operators waited for weights of the loaded model.",
      metrics.engine.stream.wait_s);
  text.one(
      "nightsweep_shared_tokens_total", "counter",
      "Prompt tokens that were not computed, since another prompt begins alike.",
      static_cast<double>(metrics.engine.shared_tokens));
  if (metrics.counters.energy_j >= 0) {
    text.one(
        "nightsweep_energy_joules_total", "counter", "Energy used during sweeps (NVML, RAPL).",
        metrics.counters.energy_j);
  }
  return text.take();
}

void write_metrics(const std::string& path, const Metrics& metrics) {
  AtomicFile file(path, 0644);
  file.write(metrics_text(metrics));
  file.commit();
}

}  // namespace nightsweep
