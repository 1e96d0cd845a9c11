#include "kernels/cuda/linear_wide.cuh"

namespace nightsweep::cuda {
template const WideKernelList& linear_wide_kernels<QuantType::q4_1>();
}  // namespace nightsweep::cuda
