// Between linear.cc, which plans and checks, and the kernels, one .cu file a type. Not for others.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/linear_layout.h"

namespace nightsweep::cuda {

inline constexpr uint32_t kMaxParts = 4;  // matrices of one type in one launch

struct PartArgs {
  const uint8_t* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  uint32_t n_rows = 0;  // outputs
  uint32_t out_stride = 0;
  uint32_t out_column = 0;
  bool accumulate = false;
  uint32_t first_tile = 0;  // tiles of outputs, counted over all parts
};

struct LinearArgs {
  PartArgs parts[kMaxParts];
  uint32_t n_parts = 0;
  uint32_t n_tiles = 0;   // of outputs, all parts
  uint32_t n_chunks = 0;  // of 64 columns
  uint32_t rows = 0;      // of the input
  const uint8_t* input = nullptr;
  const float* input_scale = nullptr;
  // Of the large tiles: partial sums and the number of those that have arrived (zero between
  // launches).
  uint32_t splits_in_turn = 0;
  float4* partials = nullptr;
  uint32_t* arrived = nullptr;
  // Of several launches for one input, one a type of weights, each runs beside the one before.
  bool is_beside = false;
  bool lets_next = false;  // start before this one ends
};

// How many outputs and rows of input a block works on, and how: a larger tile for more rows, with
// the same bits. The wide ones are for sm_90a.
enum class TileShape : uint32_t {
  rows_8,
  rows_16,
  rows_32,
  rows_64,
  rows_128,
  wide_32,
  wide_64,
  wide_128,
  narrow_64,  // as many blocks again for small matrices
};
inline constexpr uint32_t kTileShapes = 9;
inline constexpr uint32_t kFirstWideShape = 5;
struct TileTraits {
  uint32_t outputs;
  uint32_t rows;
  uint32_t threads;
  uint32_t stages;  // of the input in shared memory; 0: it is read through the first-level cache
};
constexpr TileTraits tile_traits(TileShape shape) {
  switch (shape) {
    case TileShape::rows_8:
      return {16, 8, 128, 0};
    case TileShape::rows_16:
      return {32, 16, 128, 0};
    case TileShape::rows_32:
      return {32, 32, 128, 0};
    case TileShape::rows_64:
      return {128, 64, 128, 3};
    case TileShape::rows_128:
      return {256, 128, 256, 4};
    case TileShape::wide_32:
      return {128, 32, 320, 8};
    case TileShape::wide_64:
      return {256, 64, 320, 6};
    case TileShape::wide_128:
      return {256, 128, 384, 4};
    case TileShape::narrow_64:
      return {128, 64, 320, 4};
  }
  return {};
}
constexpr bool is_wide(TileShape shape) {
  return static_cast<uint32_t>(shape) >= kFirstWideShape;
}

struct KernelEntry {
  const void* function = nullptr;
  uint32_t shared_bytes = 0;  // dynamic
};
using KernelList = KernelEntry[kFirstWideShape];
using WideKernelList = KernelEntry[kTileShapes - kFirstWideShape];

// One a type, in linear_TYPE.cu and linear_wide_TYPE.cu.
template <QuantType kType>
const KernelList& linear_kernels();
template <QuantType kType>
const WideKernelList& linear_wide_kernels();

// Runs chains of products both as mma.sync and as warpgroup products on the current device, which
// must be of compute capability 9.0. differences: one word of the device, gets the number of
// results that differ; all of them if this program has no warpgroup products.
void launch_compare_products(uint32_t* differences, cudaStream_t stream);

void launch_pack(
    QuantType type,
    const uint8_t* file,
    uint32_t n_rows,
    uint32_t n_cols,
    uint8_t* packed,
    cudaStream_t stream);

void launch_embed(
    QuantType type,
    const uint8_t* table,
    bool is_packed,
    uint32_t n_cols,
    const uint32_t* ids,
    uint32_t count,
    float* out,
    cudaStream_t stream);

// What becomes the input, row by row.
enum class InputKind { plain, rms_norm, gated };
struct InputArgs {
  const float* x = nullptr;       // (rows, n_cols); of `gated`: the gate
  const float* second = nullptr;  // rms_norm: weight (n_cols); gated: (rows, n_cols)
  float epsilon = 0.0F;
  uint32_t rows = 0;
  uint32_t n_cols = 0;
  float* values = nullptr;  // (rows, n_cols) in float32, or null
  InputPlace prepared;
  uint32_t n_multiprocessors = 0;
};
// REQUIRES: n_cols <= kMaxInputCols.
inline constexpr uint32_t kMaxInputCols = 65536;
void launch_input(InputKind kind, const InputArgs& args, cudaStream_t stream);

void launch_exact(
    QuantType type,
    const LinearArgs& args,  // tiles of 16 outputs
    bool is_packed,
    uint32_t n_cols,
    const float* x,
    cudaStream_t stream);

}  // namespace nightsweep::cuda
