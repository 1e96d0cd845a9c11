#include "kernels/cuda/linear_wide.cuh"

namespace nightsweep::cuda {
template const WideKernelList& linear_wide_kernels<QuantType::q6_k>();
}  // namespace nightsweep::cuda
