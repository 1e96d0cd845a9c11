// The one place where a CUDA status becomes an Error, with what was attempted and what to do.
// nvcc does not compile {fmt}'s checked strings, so no header for kernels includes base/format.h.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace nightsweep::cuda {

// "out of memory (cudaErrorMemoryAllocation)"
std::string status_text(cudaError_t status);

// Throws Error(device) for what a machine can do to us (no driver, ECC error, exclusive mode, a
// lost device), Error(internal) for a call that could never work. `what` names the call or kernel
// with its arguments.
[[noreturn]] void fail_status(cudaError_t status, std::string_view what);

// Error(internal): a fault of ours, in a file that nvcc compiles.
[[noreturn]] void fail_internal(std::string_view what);

inline void check(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) [[unlikely]]
    fail_status(status, what);
}

}  // namespace nightsweep::cuda
