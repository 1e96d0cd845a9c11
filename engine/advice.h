// What would make a sweep faster: the same forecast on a machine with a little more of one thing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/forecast.h"

namespace nightsweep {

struct Advice {
  std::string change;  // "16 GiB more RAM"
  double factor = 1;   // tokens a second over those of today
  uint32_t n_sequences = 0;
};

// Most helpful first; without what helps by less than a twentieth. With `night`, the night's
// tokens a second are compared, else those of decoding.
std::vector<Advice> find_advice(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const MachineRates& rates,
    const std::optional<NightLoad>& night);

// Of all jobs' answers, from begin to end.
double night_tokens_per_s(const NightLoad& load, const NightCost& cost);

}  // namespace nightsweep
