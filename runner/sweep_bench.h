// `bench sweep`: prefill and decode of the engine, each case held against its forecast.
#pragma once

#include <string>

#include "base/json.h"
#include "runner/options.h"

namespace nightsweep {

// One case, measured and predicted.
struct SweepCase {
  uint32_t n_sequences = 0;
  double prefill_tps = 0;
  double decode_tps = 0;      // while all sequences decode and none prefills
  double decode_sweep_s = 0;  // mean of such sweeps
  double all_in_tps = 0;      // generated tokens over the time of the whole case
  uint64_t streamed_bytes = 0;
  double disk_share = 0;
  double disk_rate = 0;  // bytes a second, measured at the start
  uint64_t copied_bytes = 0;
  double link_share = 0;
  double link_rate = 0;
  double wait_share = 0;       // of all sweeps' time: computing stood still for want of weights
  double read_busy_share = 0;  // the same: at least one read of the disk was in flight
  double idle_share = 0;       // the same between sweeps: a GPU had run out of operators
  uint32_t free_rows = 0;      // as the engine has learnt them; 0: not known
  // Predicted; what a sweep cannot be faster than: link and disk alone, and `compute` for all.
  double predicted_sweep_s = 0;
  double predicted_prefill_tps = 0;
  double predicted_all_in_tps = 0;
  double traffic_s = 0;  // the larger of link and disk; 0: nothing streams
  std::string binding;

  double measured_over_predicted() const {
    return predicted_sweep_s > 0 ? decode_sweep_s / predicted_sweep_s : 0;
  }
  // Tokens a second that link and disk allow; 0: they set no limit.
  double limit_tps() const { return traffic_s > 0 ? n_sequences / traffic_s : 0; }
};

Json case_json(const SweepCase& one);
std::string case_heading();
std::string case_text(const SweepCase& one);

// Returns the exit code; throws Error.
int bench_sweep(const Arguments& arguments);

}  // namespace nightsweep
