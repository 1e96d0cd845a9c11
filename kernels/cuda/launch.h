// Starts a kernel; a failure names the kernel, its shape and its arguments.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

struct LaunchShape {
  dim3 grid;
  uint32_t threads = 0;
  size_t shared_bytes = 0;
};

// Numbers as they are; of an address or a structure that it was there.
template <typename T>
std::string argument_text(const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    return value == nullptr ? "null" : "address";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else {
    return "{...}";
  }
}

template <typename... Args>
[[noreturn]] void
fail_launch(cudaError_t status, const char* name, const LaunchShape& shape, const Args&... args) {
  std::string text = std::string("kernel ") + name + " of " + std::to_string(shape.grid.x) + " x " +
                     std::to_string(shape.grid.y) + " x " + std::to_string(shape.grid.z) +
                     " blocks, " + std::to_string(shape.threads) + " threads, " +
                     std::to_string(shape.shared_bytes) + " bytes shared, with (";
  const char* separator = "";
  ((text += separator + argument_text(args), separator = ", "), ...);
  fail_status(status, text + ")");
}

// Whether this thread's GPU may start a kernel while the one before it ends (9.0 and later).
bool can_start_early();

#ifdef __CUDACC__
// First statement of every kernel that launch() starts: what was queued before is done and visible.
// Until then only the start itself has been brought forward.
__device__ inline void wait_for_earlier() {
  #if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  #endif
}
#endif

// REQUIRES: the kernel begins with wait_for_earlier().
template <typename... Params>
void launch(
    const char* name,
    void (*kernel)(Params...),
    const LaunchShape& shape,
    cudaStream_t stream,
    std::type_identity_t<Params>... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = can_start_early() ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, args...);
  if (status != cudaSuccess) fail_launch(status, name, shape, args...);
}

}  // namespace nightsweep::cuda
