#include <algorithm>
#include <iterator>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/page_copy.h"

namespace nightsweep::cuda {

namespace {

constexpr uint32_t kThreads = 256;
// Of 16 bytes a thread, all under way at once.
constexpr uint32_t kLoads = 4;
constexpr uint32_t kBlockBytes = kThreads * kLoads * sizeof(uint4);

// By value: a copy of them would stop the stream of kernels.
struct FewCopies {
  KvPageCopy pages[256];
};

// One block: a piece of one page of one layer.
__global__ void __launch_bounds__(kThreads) copy_pages_kernel(
    std::byte* pages,
    uint32_t page_bytes,
    size_t layer_bytes,
    const FewCopies copies) {
  wait_for_earlier();
  let_next_start();
  const KvPageCopy copy = copies.pages[blockIdx.z];
  std::byte* const layer = pages + layer_bytes * blockIdx.y;
  const auto* const from = reinterpret_cast<const uint4*>(layer + size_t{page_bytes} * copy.from);
  auto* const to = reinterpret_cast<uint4*>(layer + size_t{page_bytes} * copy.to);
  const uint32_t n_units = page_bytes / sizeof(uint4);
  const uint32_t first = blockIdx.x * (kThreads * kLoads) + threadIdx.x;
  uint4 units[kLoads];
#pragma unroll
  for (uint32_t i = 0; i < kLoads; ++i) {
    if (first + i * kThreads < n_units) units[i] = from[first + i * kThreads];
  }
#pragma unroll
  for (uint32_t i = 0; i < kLoads; ++i) {
    if (first + i * kThreads < n_units) to[first + i * kThreads] = units[i];
  }
}

}  // namespace

void copy_pages(
    const KvLayer& first,
    uint32_t n_layers,
    size_t layer_bytes,
    std::span<const KvPageCopy> copies,
    cudaStream_t stream) {
  const auto page_bytes = static_cast<uint32_t>(first.page_bytes);
  while (!copies.empty()) {
    FewCopies few{};
    const size_t n_copies = std::min(copies.size(), std::size(few.pages));
    std::ranges::copy(copies.first(n_copies), few.pages);
    launch(
        "copy_pages", copy_pages_kernel,
        {.grid =
             {(page_bytes + kBlockBytes - 1) / kBlockBytes, n_layers,
              static_cast<uint32_t>(n_copies)},
         .threads = kThreads},
        stream, first.pages, page_bytes, layer_bytes, few);
    copies = copies.subspan(n_copies);
  }
}

}  // namespace nightsweep::cuda
