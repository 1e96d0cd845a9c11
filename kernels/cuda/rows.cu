#include <algorithm>
#include <iterator>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/swiglu.cuh"

namespace nightsweep::cuda {

namespace {

constexpr uint32_t kThreads = 256;

// By value: a copy of them would stop the stream of kernels.
struct FewRows {
  uint32_t numbers[256];
};

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const float* gate, const float* up, size_t count, float* out) {
  wait_for_earlier();
  let_next_start();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = gated(gate[i], up[i]);
}

__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const float* x, const FewRows rows, uint32_t dim, float* out) {
  wait_for_earlier();
  let_next_start();
  const float* const row = x + size_t{rows.numbers[blockIdx.y]} * dim;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < dim) out[size_t{blockIdx.y} * dim + i] = row[i];
}

}  // namespace

void swiglu(const float* gate, const float* up, size_t count, float* out, cudaStream_t stream) {
  if (count == 0) return;
  const auto n_blocks = static_cast<uint32_t>((count + kThreads - 1) / kThreads);
  launch(
      "swiglu", swiglu_kernel, {.grid = {n_blocks}, .threads = kThreads}, stream, gate, up, count,
      out);
}

void gather_rows(
    const float* x,
    std::span<const uint32_t> rows,
    uint32_t dim,
    float* out,
    cudaStream_t stream) {
  while (!rows.empty()) {
    FewRows few{};
    const size_t n_rows = std::min(rows.size(), std::size(few.numbers));
    std::ranges::copy(rows.first(n_rows), few.numbers);
    launch(
        "gather_rows", gather_rows_kernel,
        {.grid = {(dim + kThreads - 1) / kThreads, static_cast<uint32_t>(n_rows)},
         .threads = kThreads},
        stream, x, few, dim, out);
    rows = rows.subspan(n_rows);
    out += n_rows * dim;
  }
}

}  // namespace nightsweep::cuda
