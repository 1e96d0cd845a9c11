#include "kernels/cuda/status.h"

#include "base/error.h"
#include "kernels/cuda/launch.h"

namespace nightsweep::cuda {

namespace {

// Faults of ours: no other machine and no second try would help.
bool is_internal(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotReady:
      return true;
    default:
      return false;
  }
}

std::string_view remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver:
      return "the driver is older than this program's CUDA Toolkit: update the NVIDIA driver";
    case cudaErrorNoDevice:
      return "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it";
    case cudaErrorInvalidDevice:
      return "there is no GPU of that number";
    case cudaErrorDevicesUnavailable:
      return "the GPU is busy or in exclusive mode: end the other program, or set the compute mode "
             "to default";
    case cudaErrorMemoryAllocation:
      return "lower --vram, --batch or --context, or choose --kv q8_0";
    case cudaErrorECCUncorrectable:
      return "the GPU's memory has an uncorrectable ECC error: restart the machine, and replace "
             "the "
             "card if it comes back; finished answers are kept";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      return "this build has no kernels for this GPU: build with its compute capability in "
             "NIGHTSWEEP_CUDA_ARCHITECTURES";
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return "driver and libraries of this machine do not fit together: restart it, or reinstall "
             "the driver";
    default:
      return "the GPU was lost (the kernel's log may have an NVRM Xid line): finished answers are "
             "kept, start again to go on";
  }
}

}  // namespace

std::string status_text(cudaError_t status) {
  return format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

void fail_status(cudaError_t status, std::string_view what) {
  (void)cudaGetLastError();  // a later call must not report this one again
  if (is_internal(status)) fail(ErrorKind::internal, "CUDA: {}: {}", what, status_text(status));
  fail(ErrorKind::device, "CUDA: {}: {}; {}", what, status_text(status), remedy(status));
}

bool can_start_early() {
  thread_local const bool kCan = [] {
    int device = 0;
    int major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDevAttrComputeCapabilityMajor");
    return major >= 9;
  }();
  return kCan;
}

void fail_internal(std::string_view what) {
  fail(ErrorKind::internal, "CUDA: {}", what);
}

}  // namespace nightsweep::cuda
