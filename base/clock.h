// Times as the queue, result lines and people count them.
#pragma once

#include <chrono>
#include <cstdint>

namespace nightsweep {

// Milliseconds of the wall clock since 1970-01-01T00:00:00Z; may jump, also backwards.
int64_t unix_ms();

// Never jumps.
double seconds_since(std::chrono::steady_clock::time_point begin);

}  // namespace nightsweep
