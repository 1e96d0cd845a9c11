#include "kernels/cuda/linear_instance.cuh"

namespace nightsweep::cuda {
template const KernelList& linear_kernels<QuantType::q6_k>();
}  // namespace nightsweep::cuda
