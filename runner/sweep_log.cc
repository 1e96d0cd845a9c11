#include "runner/sweep_log.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace nightsweep {

namespace {

// Of the measured rate; below 0: nothing passed, or nobody measured.
double share_of(uint64_t bytes, double seconds, double rate) {
  if (bytes == 0 || seconds <= 0 || rate <= 0) return -1;
  return static_cast<double>(bytes) / seconds / rate;
}

std::string binding_of(double link_share, double disk_share) {
  constexpr double kBusy = 0.5;
  if (link_share < kBusy && disk_share < kBusy) return "device";
  return link_share >= disk_share ? "link" : "disk";
}

}  // namespace

SweepRecord record_between(const EngineStats& before, const EngineStats& after) {
  SweepRecord record;
  record.n_sweeps = after.steps - before.steps;
  record.prefill_tokens = after.prefill_tokens - before.prefill_tokens;
  record.decode_tokens = after.decode_tokens - before.decode_tokens;
  record.shared_tokens = after.shared_tokens - before.shared_tokens;
  record.evictions = after.evictions - before.evictions;
  record.sweep_s = after.step_s - before.step_s;
  const StreamStats& from = before.stream;
  const StreamStats& to = after.stream;
  record.resident_bytes = to.resident_bytes * record.n_sweeps;
  record.link_bytes = to.copied_bytes - from.copied_bytes;
  record.disk_bytes = to.streamed_bytes + to.filled_bytes - from.streamed_bytes - from.filled_bytes;
  record.wait_s = to.wait_s - from.wait_s;
  record.link_wait_s = to.copy_wait_s - from.copy_wait_s;
  record.ring_wait_s = to.ring_wait_s - from.ring_wait_s;
  record.disk_busy_s = to.read_busy_s - from.read_busy_s;
  record.link_share = share_of(record.link_bytes, record.sweep_s, to.measured_link_rate);
  record.disk_share = share_of(record.disk_bytes, record.sweep_s, to.measured_disk_rate);
  record.binding = binding_of(record.link_share, record.disk_share);
  return record;
}

SweepLog::SweepLog(Queue& queue, const Engine& engine, std::string model, double row_every_s)
    : queue_(queue), engine_(engine), model_(std::move(model)), row_every_s_(row_every_s) {}

SweepLog::Moment SweepLog::moment(const Totals& totals) const {
  return {.stats = engine_.stats(), .totals = totals, .time_ms = unix_ms(), .clock = Clock::now()};
}

void SweepLog::before_step(const Totals& totals) {
  if (!begin_) begin_ = moment(totals);
}

void SweepLog::after_step(const Totals& totals) {
  if (!begin_) return;
  const std::chrono::duration<double> taken = Clock::now() - begin_->clock;
  if (taken.count() < row_every_s_) return;
  // The next row begins here: what is saved between two steps belongs to one of them.
  const Moment end = moment(totals);
  write(*std::exchange(begin_, end), end);
}

void SweepLog::flush(const Totals& totals) {
  if (!begin_) return;
  write(*std::exchange(begin_, std::nullopt), moment(totals));
}

void SweepLog::write(const Moment& begin, const Moment& end) {
  SweepRecord record = record_between(begin.stats, end.stats);
  if (record.n_sweeps == 0) return;
  record.model = model_;
  record.begin_ms = begin.time_ms;
  record.end_ms = end.time_ms;
  record.new_tokens = end.totals.new_tokens - begin.totals.new_tokens;
  record.queue_s = end.totals.queue_s - begin.totals.queue_s;
  if (end.totals.energy_j >= 0) {
    record.energy_j = end.totals.energy_j - std::max(begin.totals.energy_j, 0.0);
  }
  queue_.add_sweeps(record);
}

}  // namespace nightsweep
