// A kernel that comes before another one, lets it start at once and does its own work late.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace nightsweep::cuda {

// Copies n_bytes, a multiple of 4, once *may_copy (of the host, page-locked) is no longer zero.
// What is queued next starts meanwhile, if it is launched so that it may.
void launch_late_copy(
    const void* from,
    void* to,
    size_t n_bytes,
    const volatile uint32_t* may_copy,
    cudaStream_t stream);

// Copies as well, may start early, and does not wait for the kernel before it: the control.
void launch_hasty_copy(const void* from, void* to, size_t n_bytes, cudaStream_t stream);

}  // namespace nightsweep::cuda
