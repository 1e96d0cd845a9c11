// Page-aligned anonymous memory.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"

namespace nightsweep::cpu {

// From so much on memory begins at a huge page, and the system is asked for huge ones: streaming
// through weights then misses the TLB far less.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;
inline constexpr size_t kLeastInHugePages = 4 * kHugePageBytes;

// Zeroed; pages become resident when first touched. Throws Error(device).
std::unique_ptr<DeviceMemory> allocate_memory(size_t size_bytes);

}  // namespace nightsweep::cpu
