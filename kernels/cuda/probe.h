// Which GPU, and why none.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"

namespace nightsweep::cuda {

struct GpuInfo {
  int index = 0;
  std::string name;         // "NVIDIA H200"
  std::string pci_address;  // "00000000:3b:00.0"
  uint32_t capability = 0;  // 90 for 9.0
  uint32_t n_processors = 0;
  size_t shared_bytes = 0;  // most of a block
  size_t memory_bytes = 0;
  DeviceLimits limits;
};

// Makes the GPU current for this thread. Throws Error(device) with the reason: no driver, a driver
// older than this toolkit, no GPU, none of that number, exclusive mode, an ECC error, a GPU that
// this build has no kernels for.
GpuInfo open_gpu(uint32_t index);

}  // namespace nightsweep::cuda
