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
  double link_share = 0;  // the same of the link
  bool is_waiting = false;
};

// Exposition format 0.0.4.
std::string metrics_text(const Metrics& metrics);
// The file appears complete and at once, readable by all: the collector is another user.
void write_metrics(const std::string& path, const Metrics& metrics);

}  // namespace nightsweep
