// Memory of the GPU, and page-locked memory of the host.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace nightsweep::cuda {

// Both throw Error(device) that says what was asked, what is free, and which option to change.
// Their contents are undefined.
std::unique_ptr<DeviceMemory> allocate_on_gpu(size_t size_bytes);
std::unique_ptr<DeviceMemory> allocate_page_locked(size_t size_bytes);

}  // namespace nightsweep::cuda
