// FreeRows: how many rows a sweep computes while its weights are on their way.
//
// A sweep takes as long as the link or the disk is busy, or as its rows take to compute, whichever
// is longer. Up to rows* the first is: prompts then ride along beside answers at no cost, and more
// of them would only make every answer wait. Nobody need know the speed of the device: where a
// sweep of many rows takes longer than its bytes do, it had more than rows*.
#pragma once

#include <cstdint>

#include "engine/weight_stream.h"

namespace nightsweep {

struct SweepTimes {
  uint32_t rows = 0;
  uint32_t prompt_rows = 0;  // of them
  double seconds = 0;
  double traffic_s = 0;  // what its bytes take at the rate of the link, or of the disk; 0: none
};

// Seconds that what passed between the two takes, on the slower way. Rates of a throttle; 0: none.
// What came for the first time is no measure: then 0.
double traffic_seconds(
    const StreamStats& before,
    const StreamStats& after,
    double link_rate,
    double disk_rate);

class FreeRows {
 public:
  // With fewer rows of prompts reading the weights costs more than computing: no limit is lower.
  static constexpr uint32_t kLeast = 512;

  void note(const SweepTimes& sweep);
  bool is_known() const { return rows_ > 0; }
  // Of a sweep, answers and prompts together; UINT32_MAX while none is known.
  uint32_t rows() const;

 private:
  double rows_ = 0;      // 0: no sweep had too many
  double slowness_ = 1;  // sweeps of no more than kLeast prompt rows / their traffic
};

}  // namespace nightsweep
