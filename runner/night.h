// The night so far: what `status` tells of the sweeps in the queue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "queue/queue.h"

namespace nightsweep {

struct Night {
  int64_t begin_ms = 0;
  int64_t end_ms = 0;
  uint64_t n_sweeps = 0;
  uint64_t prompt_tokens = 0;  // computed
  uint64_t shared_tokens = 0;  // of prompts, not computed again
  uint64_t generated_tokens = 0;
  uint64_t link_bytes = 0;
  uint64_t disk_bytes = 0;
  double sweep_s = 0;
  double queue_s = 0;
  double wait_s = 0;
  double link_wait_s = 0;
  double ring_wait_s = 0;
  double disk_busy_s = 0;
  std::string binding;  // of most of the time: "link", "disk" or "device"
  // Of what binds, of its measured rate, while it was what binds; below 0: the device.
  double share = -1;
  double energy_j = -1;          // of what was measured; below 0: nothing
  double joules_per_token = -1;  // generated ones; below 0: not measured

  double tokens_per_s() const {
    return sweep_s > 0 ? static_cast<double>(generated_tokens) / sweep_s : 0;
  }
};

// How far back status looks.
inline constexpr int64_t kNightMs = 24 * 3'600 * int64_t{1000};

// `records`: oldest first. What lies before a pause of two hours was another night. nullopt: there
// are none.
std::optional<Night> night_of(const std::vector<SweepRecord>& records);

Json night_json(const Night& night);
// A line or two for people, `began` being the local time at which it began.
std::string night_text(const Night& night, const std::string& began);

}  // namespace nightsweep
