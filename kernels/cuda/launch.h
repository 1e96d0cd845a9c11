// Starts a kernel; a failure names the kernel, its shape and its arguments.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

struct LaunchShape {
  dim3 grid;
  uint32_t threads = 0;
  size_t shared_bytes = 0;
  uint32_t cluster_blocks = 1;  // neighbours along x that run together and talk: 9.0 and later
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

// Whether this thread's GPU may start a kernel while the one before it ends, and blocks in clusters
// (9.0 and later).
bool can_start_early();
inline bool can_start_clusters() {
  return can_start_early();
}

#ifdef __CUDACC__
// EARLY STARTS (programmatic dependent launch, 9.0 and later; nothing before). Every kernel of a
// step waits, before it reads or writes what others do, until all that was queued before is done
// and visible. Each waits for the one before it, so the wait reaches back over all of them. Only
// what no kernel in flight may have written can be read earlier: weights that have stood since the
// stream was last waited for.
//
// The kernels between the linear operators let the next one start as soon as their own wait is
// over, when the multiprocessors are empty: its weights are on their way meanwhile. A linear
// operator does so early for few rows only, and for its neighbour of another type: many blocks that
// start in the tail of another kernel crowd on the few multiprocessors that are free by then, and
// stay there. For many rows each block does so when all that is left to it is to store its sums.
__device__ __forceinline__ void let_next_start() {
  #if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  #endif
}
__device__ __forceinline__ void wait_for_earlier() {
  #if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  #endif
}
#endif

// The settings of a start, with the attribute that allows it to be early where the GPU can. Without
// it a kernel starts when the one before it is over, and its waits pass.
class LaunchSettings {
 public:
  LaunchSettings(const LaunchShape& shape, cudaStream_t stream, bool may_start_early = true) {
    const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
      attributes_[config_.numAttrs].id = id;
      return attributes_[config_.numAttrs++].val;
    };
    if (may_start_early && can_start_early()) {
      add(cudaLaunchAttributeProgrammaticStreamSerialization)
          .programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster_blocks > 1) {
      auto& size = add(cudaLaunchAttributeClusterDimension).clusterDim;
      size.x = shape.cluster_blocks;
      size.y = size.z = 1;
    }
    config_.gridDim = shape.grid;
    config_.blockDim = dim3(shape.threads);
    config_.dynamicSmemBytes = shape.shared_bytes;
    config_.stream = stream;
    config_.attrs = attributes_;
  }
  LaunchSettings(const LaunchSettings&) = delete;
  LaunchSettings& operator=(const LaunchSettings&) = delete;
  const cudaLaunchConfig_t* get() const { return &config_; }

 private:
  cudaLaunchAttribute attributes_[2] = {};
  cudaLaunchConfig_t config_{};
};

// REQUIRES: the kernel waits as said above.
template <typename... Params>
void launch(
    const char* name,
    void (*kernel)(Params...),
    const LaunchShape& shape,
    cudaStream_t stream,
    std::type_identity_t<Params>... args) {
  const LaunchSettings settings(shape, stream);
  const cudaError_t status = cudaLaunchKernelEx(settings.get(), kernel, args...);
  if (status != cudaSuccess) fail_launch(status, name, shape, args...);
}

}  // namespace nightsweep::cuda
