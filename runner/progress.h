// How the work goes on, for people: one live line on a terminal, a plain line a minute elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/json.h"
#include "engine/engine.h"
#include "runner/worker.h"

namespace nightsweep {

struct ProgressState {
  uint64_t answered = 0;  // of all, earlier runs included
  uint64_t failed = 0;
  uint64_t total = 0;  // 0: unknown
  uint64_t in_flight = 0;
  double tokens_per_s = 0;  // now
  double jobs_per_s = 0;    // since the start
  double disk_share = 0;    // of the disk's measured rate; 0: nothing is streamed
  double link_share = 0;    // the same of the link into the device's memory
  double left_s = -1;       // below 0: unknown
};

std::string progress_text(const ProgressState& state);
Json progress_json(const ProgressState& state);

// Rates over the last seconds, from counters that only grow.
class RateMeter {
 public:
  explicit RateMeter(double window_s = 10) : window_s_(window_s) {}
  void add(double now_s, double count);
  double per_second() const;

 private:
  double window_s_;
  std::deque<std::pair<double, double>> points_;
};

// Owns the live line. One object at a time.
class ProgressLine {
 public:
  enum class Style { silent, live, plain };
  // Live where stderr is a terminal, plain elsewhere; `quiet`: silent.
  static Style style_for(bool quiet);
  explicit ProgressLine(Style style);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const ProgressState& state);

 private:
  Style style_;
  std::chrono::steady_clock::time_point last_plain_ = std::chrono::steady_clock::now();
};

}  // namespace nightsweep
