// In place of the CUDA device in a build without it.
#include "base/error.h"
#include "kernels/cuda/trap.h"
#include "kernels/device.h"

namespace nightsweep {

CudaSupport cuda_support() {
  return {.is_built = false, .n_gpus = 0, .why_not = "this build has no CUDA"};
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  fail(
      ErrorKind::device,
      "--device cuda:{}: this build has no CUDA (use --device cpu, or build with nvcc)",
      options.index);
}

void cuda::launch_trap() {
  fail(ErrorKind::internal, "this build has no CUDA, and no GPU to lose");
}

}  // namespace nightsweep
