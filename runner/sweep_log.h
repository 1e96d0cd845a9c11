// SweepLog: what the sweeps do, summed up into a row of the queue every few seconds.
//
// A row holds whole sweeps: those of about ten seconds, or one where it takes longer. So a night is
// a few thousand rows, and writing them a small part of a per cent of the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "queue/queue.h"

namespace nightsweep {

class SweepLog {
 public:
  static constexpr double kRowEvery = 10;

  // `model`: its file. Both must outlive it.
  SweepLog(Queue& queue, const Engine& engine, std::string model, double row_every_s = kRowEvery);

  // What the worker has counted so far.
  struct Totals {
    uint64_t new_tokens = 0;
    double queue_s = 0;
    double energy_j = -1;  // below 0: not measured
  };
  void before_step(const Totals& totals);
  // Writes the row if its time has come.
  void after_step(const Totals& totals);
  // Writes what there is; nothing is at work.
  void flush(const Totals& totals);

 private:
  using Clock = std::chrono::steady_clock;
  struct Moment {
    EngineStats stats;
    Totals totals;
    int64_t time_ms = 0;
    Clock::time_point clock;
  };
  Moment moment(const Totals& totals) const;
  void write(const Moment& begin, const Moment& end);

  Queue& queue_;
  const Engine& engine_;
  const std::string model_;
  const double row_every_s_;
  std::optional<Moment> begin_;  // of the row at hand
};

// The difference of two counts of one engine, as a record without times and energy.
SweepRecord record_between(const EngineStats& before, const EngineStats& after);

}  // namespace nightsweep
