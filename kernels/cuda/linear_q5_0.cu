#include "kernels/cuda/linear_instance.cuh"

namespace nightsweep::cuda {
template const KernelList& linear_kernels<QuantType::q5_0>();
}  // namespace nightsweep::cuda
