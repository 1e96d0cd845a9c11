// The extents of a slice as matrices, and what they take packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// One extent as a matrix in file layout; `data` is its first byte.
MatrixView view_of(const WeightExtent& extent, const std::byte* data);

// Packed, each extent on cache lines of its own.
uint64_t packed_extent_bytes(const WeightExtent& extent, const DeviceSizes& device);
uint64_t packed_slice_bytes(const WeightSlice& slice, const DeviceSizes& device);
// Of the slice, or of the window, that takes most.
uint64_t largest_slice_bytes(const WeightPlan& plan, const DeviceSizes& device);
uint64_t largest_window_bytes(const WeightPlan& plan, const DeviceSizes& device);

}  // namespace nightsweep
