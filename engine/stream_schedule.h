// StreamSchedule: which slices pass through the rings in which sweep.
//
// Loaders run ahead of the operators, up to the end of the next sweep. So a change says from which
// sweep on it holds, and the operators make it for a sweep that no loader has begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace nightsweep {

// A slice of a sweep; both count from 0.
struct SweepPosition {
  uint64_t sweep = 0;
  uint32_t slice = 0;
};

// Thread-safe.
class StreamSchedule {
 public:
  // All pass, in every sweep.
  explicit StreamSchedule(size_t n_slices) : changes_(n_slices) {}

  void set(uint32_t slice, uint64_t from_sweep, bool passes);
  bool passes(uint32_t slice, uint64_t sweep) const;
  // Whether any slice does.
  bool any_passes(uint64_t sweep) const;
  // The first position at or behind `from` whose slice passes, or {last_sweep + 1, 0}.
  SweepPosition next(SweepPosition from, uint64_t last_sweep) const;

 private:
  bool passes_now(uint32_t slice, uint64_t sweep) const;

  mutable std::mutex mutex_;
  // By slice: from which sweep on it passes or does not, in rising order. Guarded by mutex_.
  std::vector<std::vector<std::pair<uint64_t, bool>>> changes_;
};

}  // namespace nightsweep
