// Page-aligned anonymous memory.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"

namespace nightsweep::cpu {

// Zeroed; pages become resident when first touched. Throws Error(device).
std::unique_ptr<DeviceMemory> allocate_memory(size_t size_bytes);

}  // namespace nightsweep::cpu
