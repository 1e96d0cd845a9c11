#include "kernels/cuda/linear_instance.cuh"

namespace nightsweep::cuda {
template const KernelList& linear_kernels<QuantType::f32>();
}  // namespace nightsweep::cuda
