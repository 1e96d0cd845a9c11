// Memory of the GPU, and page-locked memory of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"

namespace nightsweep::cuda {

// Both throw Error(device) that says what was asked, what is free, and which option to change.
// Their contents are undefined.
std::unique_ptr<DeviceMemory> allocate_on_gpu(size_t size_bytes);
std::unique_ptr<DeviceMemory> allocate_page_locked(size_t size_bytes);
// Page-locks memory that is only read. Throws the same.
std::unique_ptr<HostRegistration> register_read_only(const std::byte* from, size_t size_bytes);

// The text of that error for the GPU's memory; sizes in bytes.
std::string too_little_memory_text(uint64_t asked, uint64_t free, uint64_t total);

}  // namespace nightsweep::cuda
