#include "engine/stream_schedule.h"

namespace nightsweep {

void StreamSchedule::set(uint32_t slice, uint64_t from_sweep, bool passes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, bool>>& changes = changes_[slice];
  while (!changes.empty() && changes.back().first >= from_sweep)
    changes.pop_back();
  changes.emplace_back(from_sweep, passes);
}

// REQUIRES: mutex_ is held.
bool StreamSchedule::passes_now(uint32_t slice, uint64_t sweep) const {
  const std::vector<std::pair<uint64_t, bool>>& changes = changes_[slice];
  for (size_t i = changes.size(); i > 0; --i) {
    if (changes[i - 1].first <= sweep) return changes[i - 1].second;
  }
  return true;
}

bool StreamSchedule::passes(uint32_t slice, uint64_t sweep) const {
  const std::lock_guard lock(mutex_);
  return passes_now(slice, sweep);
}

bool StreamSchedule::any_passes(uint64_t sweep) const {
  return next({sweep, 0}, sweep).sweep == sweep;
}

SweepPosition StreamSchedule::next(SweepPosition from, uint64_t last_sweep) const {
  const std::lock_guard lock(mutex_);
  for (; from.sweep <= last_sweep; from = {from.sweep + 1, 0}) {
    for (; from.slice < changes_.size(); ++from.slice) {
      if (passes_now(from.slice, from.sweep)) return from;
    }
  }
  return from;
}

}  // namespace nightsweep
