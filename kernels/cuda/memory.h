// Memory of the GPU, and page-locked memory of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"

namespace nightsweep::cuda {

// All throw Error(device) that says what was asked, what is free, and which option to change.
// Their contents are undefined.
std::unique_ptr<DeviceMemory> allocate_on_gpu(size_t size_bytes);
// Of the host; kernels may read and write it.
std::unique_ptr<DeviceMemory> allocate_page_locked(size_t size_bytes);
// The same for copies only, quick to make and to give back where there is much of it.
std::unique_ptr<DeviceMemory> allocate_for_copies(size_t size_bytes);
// Page-locks memory that is only read. Throws the same.
std::unique_ptr<HostRegistration> register_read_only(const std::byte* from, size_t size_bytes);

// The text of that error for the GPU's memory; sizes in bytes.
std::string too_little_memory_text(uint64_t asked, uint64_t free, uint64_t total);

}  // namespace nightsweep::cuda
