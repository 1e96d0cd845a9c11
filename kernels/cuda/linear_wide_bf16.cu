#include "kernels/cuda/linear_wide.cuh"

namespace nightsweep::cuda {
template const WideKernelList& linear_wide_kernels<QuantType::bf16>();
}  // namespace nightsweep::cuda
