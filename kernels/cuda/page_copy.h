// Copies of KV pages. Arguments as in kernels/device.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device.h"

namespace nightsweep::cuda {

void copy_pages(
    const KvLayer& first,
    uint32_t n_layers,
    size_t layer_bytes,
    std::span<const KvPageCopy> copies,
    cudaStream_t stream);

}  // namespace nightsweep::cuda
