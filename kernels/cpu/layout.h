// How weights, inputs and KV pages stand in the memory of the CPU device. Compiled into every
// instruction set's translation unit, so all functions here have internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

namespace nightsweep::cpu {

// PACKED WEIGHTS. Panels of 16 rows; inside a panel the blocks of the inner dimension in order;
// inside a block one lane a row: each field of the file's block stands as units of 1, 2 or 4 bytes,
// 16 lanes of the first unit, then 16 lanes of the second, ... So one output is one SIMD lane with
// one chain of sums, whatever the width of the registers. Missing rows of the last panel are zero.
static constexpr uint32_t kLanes = kPanelRows;
static constexpr uint32_t kSubBlock = 32;  // elements between two scales of an input

// INPUT TILES. Up to 16 rows stand together, column by column or block by block, so that the
// kernels reach all of them at fixed distances.
static constexpr uint32_t kMaxTileRows = 16;

struct InputTile {
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  std::byte* data = nullptr;
};

struct InputTiles {
  uint32_t n_cols = 0;
  uint32_t n_tiles = 0;
  const InputTile* tiles = nullptr;
};

// Inputs rounded to 8 bits: for each 32 columns, of all rows of the tile:
//   int8 q[n_rows][32]       x ~ scale * q
//   float scale[n_rows]
//   float sum[n_rows]        of q, for types with a minimum
//   int32 start[5][n_rows]   -8, -16, -128 times the sum; -32 times the sums of both halves: what
//                            an integer sum starts from when the weight's values have an offset
static constexpr uint32_t kRoundedBytesPerRow = 32 + 4 + 4 + 5 * 4;
enum class StartSlot : uint32_t { minus_8, minus_16, minus_128, minus_32_low, minus_32_high };

static constexpr size_t rounded_scale_offset(uint32_t n_rows) {
  return size_t{32} * n_rows;
}
static constexpr size_t rounded_sum_offset(uint32_t n_rows) {
  return size_t{36} * n_rows;
}
static constexpr size_t rounded_start_offset(uint32_t n_rows, StartSlot slot) {
  return (40 + 4 * static_cast<size_t>(slot)) * n_rows;
}
static constexpr size_t rounded_tile_bytes(uint32_t n_rows, uint32_t n_cols) {
  return size_t{kRoundedBytesPerRow} * n_rows * (n_cols / kSubBlock);
}
// Inputs in float32: for each column one float of every row of the tile.
static constexpr size_t float_tile_bytes(uint32_t n_rows, uint32_t n_cols) {
  return sizeof(float) * n_rows * n_cols;
}

// KV PAGES. For each KV head, keys with tokens along the lanes, in groups of 16 tokens:
// (4, head_dim, 16); then values (64, padded head_dim). q8_0 has after each of them the scales of
// its blocks of 32 along head_dim, in f16: (n_blocks, 64), the last block may be shorter.
struct KvHeadLayout {
  uint32_t head_dim = 0;
  uint32_t padded_dim = 0;  // multiple of 16
  uint32_t n_blocks = 0;
  size_t keys = 0;  // byte offsets
  size_t key_scales = 0;
  size_t values = 0;
  size_t value_scales = 0;
  size_t size_bytes = 0;
};

static constexpr KvHeadLayout kv_head_layout(const KvShape& shape) {
  const size_t elem_bytes = shape.type == KvType::f32 ? 4 : shape.type == KvType::f16 ? 2 : 1;
  KvHeadLayout layout;
  layout.head_dim = shape.head_dim;
  layout.padded_dim = (shape.head_dim + kLanes - 1) / kLanes * kLanes;
  layout.n_blocks = (shape.head_dim + kSubBlock - 1) / kSubBlock;
  const size_t scale_bytes =
      shape.type == KvType::q8_0 ? size_t{2} * kKvPageTokens * layout.n_blocks : 0;
  layout.key_scales = elem_bytes * kKvPageTokens * shape.head_dim;
  layout.values = layout.key_scales + scale_bytes;
  layout.value_scales = layout.values + elem_bytes * kKvPageTokens * layout.padded_dim;
  layout.size_bytes = layout.value_scales + scale_bytes;
  return layout;
}

}  // namespace nightsweep::cpu
