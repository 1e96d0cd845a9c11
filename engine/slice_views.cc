#include "engine/slice_views.h"

#include <algorithm>

#include "engine/file_reader.h"

namespace nightsweep {

namespace {

// A cache line of the CPU, and the widest loads of a GPU.
constexpr uint64_t kCacheLineBytes = 64;

}  // namespace

MatrixView view_of(const WeightExtent& extent, const std::byte* data) {
  return {
      static_cast<QuantType>(extent.tensor->ggml_type), WeightLayout::file, extent.n_rows,
      static_cast<uint32_t>(extent.tensor->dims[0]), data};
}

uint64_t packed_extent_bytes(const WeightExtent& extent, const DeviceSizes& device) {
  const MatrixView view = view_of(extent, nullptr);
  return align_up(device.packed_bytes(view.type, view.n_rows, view.n_cols), kCacheLineBytes);
}

uint64_t packed_slice_bytes(const WeightSlice& slice, const DeviceSizes& device) {
  uint64_t total = 0;
  for (const WeightExtent& extent : slice.extents)
    total += packed_extent_bytes(extent, device);
  return total;
}

uint64_t largest_slice_bytes(const WeightPlan& plan, const DeviceSizes& device) {
  uint64_t largest = 0;
  for (const WeightSlice& slice : plan.slices)
    largest = std::max(largest, packed_slice_bytes(slice, device));
  return largest;
}

uint64_t largest_window_bytes(const WeightPlan& plan, const DeviceSizes& device) {
  uint64_t largest = 0;
  for (const WeightWindow& window : plan.windows) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < window.n_slices; ++i)
      total += packed_slice_bytes(plan.slices[window.first_slice + i], device);
    largest = std::max(largest, total);
  }
  return largest;
}

}  // namespace nightsweep
