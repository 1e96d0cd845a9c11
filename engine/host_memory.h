// What the machine's memory and its limits allow.
#pragma once

#include <cstdint>
#include <string>

namespace nightsweep {

// Memory that other programs keep, whatever is asked for.
inline constexpr uint64_t kHostMarginBytes = uint64_t{2} << 30;

// MemAvailable of /proc/meminfo: what can be taken without swapping. Throws Error(device).
uint64_t available_ram();

// MemAvailable less a margin for everybody else: kHostMarginBytes, a tenth, or half of a small
// machine's.
uint64_t default_ram_budget();

// "unlimited" or a size: what ulimit -l says, for messages. Drivers of GPUs lock memory on their
// own account; where one respects the limit it refuses, and this says which limit it was.
std::string locked_memory_limit_text();

}  // namespace nightsweep
