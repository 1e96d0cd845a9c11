#include <algorithm>

#include "kernels/cuda/host_copy.h"
#include "kernels/cuda/launch.h"

namespace nightsweep::cuda {

namespace {

constexpr uint32_t kThreads = 256;

// Not from a cache: the host has written other bytes there since the last time.
__global__ void __launch_bounds__(kThreads)
    host_copy_kernel(const std::byte* from, size_t size_bytes, std::byte* to) {
  const size_t at = (size_t{blockIdx.x} * kThreads + threadIdx.x) * sizeof(uint4);
  if (at + sizeof(uint4) <= size_bytes) {
    *reinterpret_cast<uint4*>(to + at) = __ldcv(reinterpret_cast<const uint4*>(from + at));
    return;
  }
  for (size_t i = at; i < size_bytes; ++i) {
    const auto byte = __ldcv(reinterpret_cast<const unsigned char*>(from + i));
    to[i] = static_cast<std::byte>(byte);
  }
}

// Starts when the copy is done and visible; who starts early does so beside this one.
__global__ void host_copy_end_kernel() {
  let_next_start();
}

// A start when all that was queued before is over.
template <typename... Params>
void launch_in_order(
    void (*kernel)(Params...),
    const LaunchShape& shape,
    cudaStream_t stream,
    std::type_identity_t<Params>... args) {
  const LaunchSettings settings(shape, stream, false);
  check(cudaLaunchKernelEx(settings.get(), kernel, args...), "kernel host_copy");
}

}  // namespace

void copy_from_host(const std::byte* from, size_t size_bytes, std::byte* to, cudaStream_t stream) {
  if (size_bytes == 0) return;
  constexpr size_t kBlockBytes = kThreads * sizeof(uint4);
  const auto n_blocks = static_cast<uint32_t>((size_bytes + kBlockBytes - 1) / kBlockBytes);
  launch_in_order(
      host_copy_kernel, {.grid = {n_blocks}, .threads = kThreads}, stream, from, size_bytes, to);
  if (can_start_early()) {
    launch_in_order(host_copy_end_kernel, {.grid = {1}, .threads = 1}, stream);
  }
}

}  // namespace nightsweep::cuda
