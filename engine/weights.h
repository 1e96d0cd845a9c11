// Where every weight lies and in which order a sweep needs it.
//
// The unit of streaming is a slice: rows of the matrices of one operator step (q, k, v; attention
// output; gate and up; down; head), cut so that none is larger than a few MiB. Norms, biases and
// other small tensors are always resident.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/model_config.h"

namespace nightsweep {

// Rows of one matrix in the file. first_row is a multiple of kPanelRows.
struct WeightExtent {
  const GgufTensor* tensor = nullptr;
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  uint32_t file = 0;
  uint64_t offset = 0;  // bytes in that file
  uint64_t size_bytes = 0;
};

// One slice: all its extents are needed by one call of Device::linear.
struct WeightSlice {
  std::vector<WeightExtent> extents;  // at most one a tensor, in the order of the group
  uint64_t size_bytes = 0;            // in file layout
};

// The matrices of one operator step, cut into slices [first_slice, first_slice + n_slices).
struct WeightGroup {
  std::vector<const GgufTensor*> tensors;
  uint32_t first_slice = 0;
  uint32_t n_slices = 0;
};

// Slices [first_slice, first_slice + n_slices) that a step needs at once when it works its rows in
// batches: each batch runs all of their operators before the next one begins.
struct WeightWindow {
  uint32_t first_slice = 0;
  uint32_t n_slices = 0;
};

// Slices in the order of a sweep.
struct WeightPlan {
  std::vector<WeightSlice> slices;
  std::vector<WeightWindow> windows;  // of the groups that see all rows of a step; in order
  uint64_t streamable_bytes = 0;      // sum over slices, in file layout
};

// Appends a group to the plan: every row of every tensor exactly once, in as few slices of about
// the same size as max_slice_bytes allows. Only where kPanelRows rows alone are larger than
// max_slice_bytes is a slice larger. The tensors must outlive the plan.
// Throws Error(model) for a tensor that is not a matrix, whose type cannot be computed with, or
// that has other columns than its neighbours. REQUIRES: at least one tensor, max_slice_bytes > 0.
WeightGroup add_group(
    WeightPlan& plan,
    const std::vector<const GgufTensor*>& tensors,
    uint64_t max_slice_bytes);

// One window of these groups, which follow each other. REQUIRES: at least one.
WeightWindow add_window(WeightPlan& plan, const std::vector<const WeightGroup*>& groups);

// Which of n pieces of these sizes are resident under a budget: spread evenly over their order, so
// that what is not resident comes at an even pace, then filled up to the last piece that fits.
std::vector<bool> spread_resident(const std::vector<uint64_t>& sizes_bytes, uint64_t budget_bytes);

}  // namespace nightsweep
