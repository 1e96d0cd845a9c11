// Small copies from the host's memory that do not wait behind the copies of weights.
//
// The copy engine works in the order in which it was asked: behind what a sweep has queued, a table
// of some kilobytes took 2.7 ms on an H200, with nothing for the operators to do meanwhile. A
// kernel reads over the link beside it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace nightsweep::cuda {

// What copy_from_host() takes: `to` begins at a multiple of this.
inline constexpr size_t kHostCopyAlignment = 16;

// In order with the stream. `from` is memory of allocate_page_locked(), aligned like `to`, and
// stays until this has been done. Kernels queued later find the bytes before their own wait for
// earlier ones, too.
void copy_from_host(const std::byte* from, size_t size_bytes, std::byte* to, cudaStream_t stream);

}  // namespace nightsweep::cuda
