// The cases of `bench sweep` as a picture: tokens a second by sequences, measured, predicted, and
// what link and disk allow.
#pragma once

#include <string>
#include <vector>

#include "runner/sweep_bench.h"

namespace nightsweep {

// An SVG document. REQUIRES: at least one case.
std::string sweep_plot(const std::string& title, const std::vector<SweepCase>& cases);

}  // namespace nightsweep
