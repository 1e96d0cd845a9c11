// The linear operator in float32, as a yardstick: weights exactly as decoded, one chain of fused
// multiply-adds an output in rising order of the columns.
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/linear_mma.cuh"
#include "kernels/cuda/linear_values.cuh"

namespace nightsweep::cuda {
namespace {

constexpr uint32_t kRows = 16;  // of the input, a block

template <QuantType kType>
__global__ void __launch_bounds__(kPanel* kRows) linear_exact(
    const __grid_constant__ LinearArgs args,
    bool is_packed,
    uint32_t n_cols,
    const float* x) {
  __shared__ float weights[kPanel][kChunk + 1];
  __shared__ float inputs[kRows][kChunk + 1];
  const PartArgs& part = part_of_tile(args, blockIdx.x);
  const uint32_t first_output = (blockIdx.x - part.first_tile) * kPanel;
  const uint32_t first_row = blockIdx.y * kRows;
  const size_t row_bytes = size_t{n_cols / file_block_elems<kType>()} * file_block_bytes<kType>();
  const uint8_t* const panel =
      part.weight + first_output / kPanel * packed_layout(kType).panel_bytes(chunk_count(n_cols));
  const uint32_t i = threadIdx.x % kPanel;
  const uint32_t j = threadIdx.x / kPanel;

  float sum = 0.0F;
  for (uint32_t first_col = 0; first_col < n_cols; first_col += kChunk) {
    for (uint32_t at = threadIdx.x; at < kPanel * kChunk; at += kPanel * kRows) {
      const uint32_t line = at / kChunk;
      const uint32_t col = first_col + at % kChunk;
      float weight = 0.0F;
      if (col < n_cols && first_output + line < part.n_rows) {
        weight = is_packed
                     ? packed_value<kType>(panel, line, col)
                     : file_value<kType>(part.weight + (first_output + line) * row_bytes, col);
      }
      weights[line][at % kChunk] = weight;
      inputs[line][at % kChunk] = col < n_cols && first_row + line < args.rows
                                      ? x[size_t{first_row + line} * n_cols + col]
                                      : 0.0F;
    }
    __syncthreads();
    const uint32_t count = min(kChunk, n_cols - first_col);
    for (uint32_t k = 0; k < count; ++k)
      sum = fmaf(weights[i][k], inputs[j][k], sum);
    __syncthreads();
  }
  const uint32_t output = first_output + i;
  const uint32_t row = first_row + j;
  if (output >= part.n_rows || row >= args.rows) return;
  if (part.bias != nullptr) sum += part.bias[output];
  float* const at = part.out + size_t{row} * part.out_stride + part.out_column + output;
  *at = part.accumulate ? *at + sum : sum;
}

template <QuantType kType>
void launch(
    const LinearArgs& args,
    bool is_packed,
    uint32_t n_cols,
    const float* x,
    cudaStream_t stream) {
  const dim3 grid(args.n_tiles, (args.rows + kRows - 1) / kRows);
  linear_exact<kType><<<grid, kPanel * kRows, 0, stream>>>(args, is_packed, n_cols, x);
}

}  // namespace

void launch_exact(
    QuantType type,
    const LinearArgs& args,
    bool is_packed,
    uint32_t n_cols,
    const float* x,
    cudaStream_t stream) {
  static_assert(kRows == kPanel);
  switch (type) {
    case QuantType::f32:
      return launch<QuantType::f32>(args, is_packed, n_cols, x, stream);
    case QuantType::f16:
      return launch<QuantType::f16>(args, is_packed, n_cols, x, stream);
    case QuantType::bf16:
      return launch<QuantType::bf16>(args, is_packed, n_cols, x, stream);
    case QuantType::q4_0:
      return launch<QuantType::q4_0>(args, is_packed, n_cols, x, stream);
    case QuantType::q4_1:
      return launch<QuantType::q4_1>(args, is_packed, n_cols, x, stream);
    case QuantType::q5_0:
      return launch<QuantType::q5_0>(args, is_packed, n_cols, x, stream);
    case QuantType::q5_1:
      return launch<QuantType::q5_1>(args, is_packed, n_cols, x, stream);
    case QuantType::q8_0:
      return launch<QuantType::q8_0>(args, is_packed, n_cols, x, stream);
    case QuantType::q4_k:
      return launch<QuantType::q4_k>(args, is_packed, n_cols, x, stream);
    case QuantType::q5_k:
      return launch<QuantType::q5_k>(args, is_packed, n_cols, x, stream);
    case QuantType::q6_k:
      return launch<QuantType::q6_k>(args, is_packed, n_cols, x, stream);
  }
}

}  // namespace nightsweep::cuda
