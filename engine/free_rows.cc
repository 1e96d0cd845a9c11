#include "engine/free_rows.h"

#include <algorithm>

namespace nightsweep {

namespace {

// A sweep that takes this much longer than its bytes was held up by its rows.
constexpr double kLonger = 1.05;
// Of what is known, this part is given up for what a sweep of too many rows says: one may have been
// held up by something else.
constexpr double kLearnt = 0.25;
// When so large a part of the rows is computed in time, a few more are tried.
constexpr double kNearlyAll = 0.9;
constexpr double kFewMore = 1.05;
constexpr double kMostRows = 1e6;

double slower(double rate, double throttle) {
  return throttle > 0 && (rate <= 0 || throttle < rate) ? throttle : rate;
}

}  // namespace

double traffic_seconds(
    const StreamStats& before,
    const StreamStats& after,
    double link_rate,
    double disk_rate) {
  if (after.filled_bytes != before.filled_bytes) return 0;
  const auto seconds = [](uint64_t n_bytes, double rate) {
    return rate > 0 ? static_cast<double>(n_bytes) / rate : 0;
  };
  return std::max(
      seconds(
          after.copied_bytes - before.copied_bytes, slower(after.measured_link_rate, link_rate)),
      seconds(
          after.streamed_bytes - before.streamed_bytes,
          slower(after.measured_disk_rate, disk_rate)));
}

void FreeRows::note(const SweepTimes& sweep) {
  if (sweep.traffic_s <= 0) return;
  const double ratio = sweep.seconds / sweep.traffic_s;
  const bool has_least = sweep.prompt_rows <= kLeast;
  if (has_least) slowness_ = std::max(1.0, slowness_ + (ratio - slowness_) * kLearnt);
  if (ratio <= slowness_ * kLonger) {
    if (is_known() && sweep.rows >= kNearlyAll * rows_) {
      rows_ = std::min(rows_ * kFewMore, kMostRows);
    }
  } else if (!has_least) {
    const double found = sweep.rows * slowness_ / ratio;
    rows_ = is_known() ? rows_ + (found - rows_) * kLearnt : found;
    rows_ = std::max<double>(rows_, kLeast);
  }
}

uint32_t FreeRows::rows() const {
  return is_known() ? static_cast<uint32_t>(rows_) : UINT32_MAX;
}

}  // namespace nightsweep
