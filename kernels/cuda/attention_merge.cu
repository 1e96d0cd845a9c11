// Merges the splits of queries that several blocks worked on, in rising order.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/softmax.cuh"

namespace nightsweep::cuda {

namespace {

// Splits whose values are on their way at once.
constexpr uint32_t kAhead = 4;

// Blocks (rows, heads), a thread an element.
template <uint32_t kDim>
__global__ void __launch_bounds__(kDim)
    merge_kernel(const MergeRow* rows, const AttentionArgs args) {
  wait_for_earlier();
  let_next_start();
  const MergeRow row = rows[blockIdx.x];
  const uint32_t head = blockIdx.y;
  const size_t first = size_t{args.workspace_rows[row.row]} + size_t{head} * row.n_splits;
  const float* const values = args.split_values + first * kDim + threadIdx.x;
  const float2* const sums = args.split_sums + first;

  float largest = kNothing;
  float sum = 0.0F;
  float value = 0.0F;
  for (uint32_t split = 0; split < row.n_splits; split += kAhead) {
    float next_values[kAhead];
    float2 next_sums[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (split + i >= row.n_splits) break;
      next_values[i] = values[size_t{split + i} * kDim];
      next_sums[i] = sums[split + i];
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (split + i >= row.n_splits) break;
      const float new_largest = fmaxf(largest, next_sums[i].x);
      const float shift = shift_of(new_largest);
      const float old_power = exp2_fast(largest - shift);
      const float add_power = exp2_fast(next_sums[i].x - shift);
      largest = new_largest;
      sum = merged(sum, old_power, next_sums[i].y, add_power);
      value = merged(value, old_power, next_values[i], add_power);
    }
  }
  const HeadOutput to(args, row.row, head);
  value *= 1.0F / sum;
  const float next = __shfl_down_sync(0xFFFFFFFFU, value, 1);
  if (threadIdx.x % 2 == 0) to.put_pair(threadIdx.x, output_pair(value, next));
  if (head == args.n_heads - 1) to.finish_row(args, row.row, threadIdx.x, kDim);
}

template <uint32_t kDim>
void start(const MergeRow* rows, uint32_t n_rows, const AttentionArgs& args, cudaStream_t stream) {
  launch(
      "attention_merge", merge_kernel<kDim>,
      {.grid = {n_rows, args.n_heads}, .threads = kDim, .shared_bytes = 0}, stream, rows, args);
}

}  // namespace

void launch_merge(
    uint32_t padded_dim,
    const MergeRow* rows,
    uint32_t n_rows,
    const AttentionArgs& args,
    cudaStream_t stream) {
  switch (padded_dim) {
    case 32:
      return start<32>(rows, n_rows, args, stream);
    case 64:
      return start<64>(rows, n_rows, args, stream);
    case 80:
      return start<80>(rows, n_rows, args, stream);
    case 96:
      return start<96>(rows, n_rows, args, stream);
    case 128:
      return start<128>(rows, n_rows, args, stream);
    case 256:
      return start<256>(rows, n_rows, args, stream);
    default:
      fail_internal("merge of heads of " + std::to_string(padded_dim));
  }
}

}  // namespace nightsweep::cuda
