#include "kernels/cuda/linear_instance.cuh"

namespace nightsweep::cuda {
template const KernelList& linear_kernels<QuantType::f16>();
}  // namespace nightsweep::cuda
