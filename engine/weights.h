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

// Rows of one matrix in the file.
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
  std::vector<WeightExtent> extents;
  uint64_t size_bytes = 0;  // in file layout
};

// The matrices of one operator step, cut into slices [first_slice, first_slice + n_slices).
struct WeightGroup {
  std::vector<const GgufTensor*> tensors;
  uint32_t first_slice = 0;
  uint32_t n_slices = 0;
};

// Slices in the order of a sweep.
struct WeightPlan {
  std::vector<WeightSlice> slices;
  uint64_t streamable_bytes = 0;  // sum over slices
};

// Appends a group to the plan. All tensors have the same number of columns.
WeightGroup add_group(
    WeightPlan& plan,
    const std::vector<const GgufTensor*>& tensors,
    uint64_t max_slice_bytes);

}  // namespace nightsweep
