#include "kernels/cuda/refusal.h"

#include "base/error.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

namespace {

constexpr int kLeastMajor = 8;

std::string version_text(int version) {
  return format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string why_no_gpu(const Probe& probe) {
  if (probe.driver_version == 0) {
    return "no NVIDIA driver is installed (libcuda.so.1 is not found): install it";
  }
  if (probe.status == cudaErrorInsufficientDriver) {
    return format(
        "the driver is for CUDA {}, this program was built with {}: update the driver",
        version_text(probe.driver_version), version_text(probe.runtime_version));
  }
  if (probe.status == cudaErrorNoDevice || (probe.status == cudaSuccess && probe.n_gpus == 0)) {
    return "the driver finds no NVIDIA GPU (or CUDA_VISIBLE_DEVICES hides it)";
  }
  try {
    check(probe.status, "cudaGetDeviceCount");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string why_unusable(const cudaDeviceProp& properties, int compute_mode) {
  if (properties.major < kLeastMajor) {
    return format(
        "{} has compute capability {}.{}, at least {}.0 is needed (RTX 30 series, A100 or later)",
        properties.name, properties.major, properties.minor, kLeastMajor);
  }
  if (compute_mode == cudaComputeModeProhibited) {
    return format(
        "{} is in compute mode 'prohibited' (nvidia-smi -c DEFAULT allows it)", properties.name);
  }
  return "";
}

}  // namespace nightsweep::cuda
