#include "kernels/cuda/attention_kernel.cuh"

namespace nightsweep::cuda {

template void launch_attention<256>(
    AttentionMode,
    KvType,
    uint32_t,
    uint32_t,
    const AttentionArgs&,
    cudaStream_t);

}  // namespace nightsweep::cuda
