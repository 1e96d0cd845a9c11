#include "kernels/cuda/linear_instance.cuh"

namespace nightsweep::cuda {
template const KernelList& linear_kernels<QuantType::bf16>();
}  // namespace nightsweep::cuda
