// Bytes that the CUDA device takes for weights, inputs and scratch. Needs no CUDA: a GPU that is
// not here can be planned by it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/linear_layout.h"

namespace nightsweep::cuda {

constexpr size_t packed_matrix_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) {
  return (size_t{n_rows} + kPanel - 1) / kPanel *
         packed_layout(type).panel_bytes(chunk_count(n_cols));
}

// A prepared input, in whole lines of 256 bytes.
constexpr size_t prepared_input_bytes(uint32_t rows, uint32_t n_cols) {
  const size_t groups = (size_t{rows} + kInputRowStep - 1) / kInputRowStep;
  const size_t size_bytes =
      groups * chunk_count(n_cols) * kInputChunkBytes + groups * kInputRowStep * sizeof(float);
  return (size_bytes + 255) / 256 * 256;
}

// One page of one layer. Throws Error(usage) or Error(model) for what a GPU does not keep.
size_t cuda_kv_page_bytes(const KvShape& shape);

// Attention: room for the splits of a few thousand queries; what does not fit goes in several
// waves.
inline constexpr size_t kAttentionWorkspaceBytes = size_t{96} << 20;

// Cosines and sines of a step's positions.
inline constexpr uint32_t kMaxRopePairs = kMaxHeadDim / 2;
constexpr size_t rope_table_bytes(uint32_t max_rows) {
  return size_t{max_rows} * kMaxRopePairs * 2 * sizeof(float);
}

}  // namespace nightsweep::cuda
