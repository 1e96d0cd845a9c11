// The kernels of one type; included once by each linear_TYPE.cu.
#pragma once

#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_small.cuh"

namespace nightsweep::cuda {

template <QuantType kType>
constexpr int units_ahead() {
  return kType == QuantType::f32 ? 1 : kType == QuantType::q8_0 ? 3 : 2;
}

template <QuantType kType, TileShape kShape, int kPanels, int kMinBlocks>
const void* large_kernel() {
  constexpr TileTraits kTraits = tile_traits(kShape);
  constexpr int kWarps = kTraits.threads / 32;
  static_assert(kTraits.outputs == kPanels * kPanel * kWarps);
  return reinterpret_cast<const void*>(
      linear_large<kType, kPanels, kTraits.rows / 8, kWarps, kTraits.stages, kMinBlocks>);
}

constexpr uint32_t stage_bytes(TileShape shape) {
  const TileTraits traits = tile_traits(shape);
  return traits.stages * traits.rows / 8 * kInputChunkBytes;
}

template <QuantType kType>
const KernelList& linear_kernels() {
  static const KernelList kernels = {
      {reinterpret_cast<const void*>(linear_small<kType, 1, 1, units_ahead<kType>()>), 0},
      {reinterpret_cast<const void*>(linear_small<kType, 2, 2, 1>), 0},
      {reinterpret_cast<const void*>(linear_small<kType, 2, 4, 1>), 0},
      {large_kernel<kType, TileShape::rows_64, 2, 3>(), stage_bytes(TileShape::rows_64)},
      {large_kernel<kType, TileShape::rows_128, 2, 1>(), stage_bytes(TileShape::rows_128)},
  };
  return kernels;
}

}  // namespace nightsweep::cuda
