// Figures for Prometheus: a file for node_exporter's textfile collector.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "queue/queue.h"
#include "runner/worker.h"

namespace nightsweep {

struct Metrics {
  JobCounts jobs;
  std::string model;        // empty: none is loaded
  WorkerCounters counters;  // since the worker's start
  EngineStats engine;
  double disk_share = 0;  // of the disk's measured rate; 0: nothing is streamed
  bool is_waiting = false;
  double watts = -1;  // of the processor; below 0: unknown
};

// Exposition format 0.0.4.
std::string metrics_text(const Metrics& metrics);
// The file appears complete and at once, readable by all: the collector is another user.
void write_metrics(const std::string& path, const Metrics& metrics);

// Mean power since the call before, from the processor's energy counter (RAPL); below 0 where there
// is none, or it may not be read.
class PowerMeter {
 public:
  explicit PowerMeter(std::string energy_file = "/sys/class/powercap/intel-rapl:0/energy_uj");
  double watts(double now_s);

 private:
  double read_joules() const;
  std::string energy_file_;
  double last_s_ = 0;
  double last_joules_ = -1;
};

}  // namespace nightsweep
