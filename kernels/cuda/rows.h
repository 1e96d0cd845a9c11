// Operators on rows. Arguments as in kernels/device.h; all pointers are the GPU's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace nightsweep::cuda {

// With the bits of LinearOperator::prepare_gated().
void swiglu(const float* gate, const float* up, size_t count, float* out, cudaStream_t stream);

// out[i] = x[rows[i]]; rows: of the host
void gather_rows(
    const float* x,
    std::span<const uint32_t> rows,
    uint32_t dim,
    float* out,
    cudaStream_t stream);

}  // namespace nightsweep::cuda
