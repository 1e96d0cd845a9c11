#include "engine/weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "kernels/device.h"

namespace nightsweep {
namespace {

GgufTensor matrix(std::string name, QuantType type, uint64_t n_cols, uint64_t n_rows) {
  GgufTensor tensor;
  tensor.name = std::move(name);
  tensor.dims = {n_cols, n_rows};
  tensor.ggml_type = static_cast<uint32_t>(type);
  tensor.size_bytes = quant_bytes(type, n_cols) * n_rows;
  tensor.offset = 1234;
  return tensor;
}

std::string error_of(const std::vector<const GgufTensor*>& tensors) {
  WeightPlan plan;
  try {
    add_group(plan, tensors, 1 << 20);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    EXPECT_TRUE(plan.slices.empty());
    return error.what();
  }
  return "no error";
}

// Every row of every tensor once and in order, at the right bytes, in slices that begin at panels.
void expect_covers(
    const WeightPlan& plan,
    const WeightGroup& group,
    const std::vector<const GgufTensor*>& tensors) {
  size_t tensor = 0;
  uint64_t next_row = 0;
  for (uint32_t s = group.first_slice; s < group.first_slice + group.n_slices; ++s) {
    const WeightSlice& slice = plan.slices[s];
    ASSERT_FALSE(slice.extents.empty());
    uint64_t slice_bytes = 0;
    for (const WeightExtent& extent : slice.extents) {
      if (next_row == tensors[tensor]->dims[1]) {
        ++tensor;
        next_row = 0;
      }
      ASSERT_EQ(extent.tensor, tensors[tensor]);
      ASSERT_EQ(extent.first_row, next_row);
      EXPECT_EQ(extent.first_row % kPanelRows, 0U);
      EXPECT_GT(extent.n_rows, 0U);
      const uint64_t row_bytes = extent.tensor->size_bytes / extent.tensor->dims[1];
      EXPECT_EQ(extent.file, extent.tensor->file);
      EXPECT_EQ(extent.offset, extent.tensor->offset + extent.first_row * row_bytes);
      EXPECT_EQ(extent.size_bytes, extent.n_rows * row_bytes);
      slice_bytes += extent.size_bytes;
      next_row += extent.n_rows;
    }
    EXPECT_EQ(slice.size_bytes, slice_bytes);
  }
  EXPECT_EQ(tensor, tensors.size() - 1);
  EXPECT_EQ(next_row, tensors.back()->dims[1]);
}

TEST(Weights, slices_cover_every_row_once_whatever_the_shapes) {
  struct Shape {
    QuantType type;
    uint64_t n_rows;
  };
  const std::vector<std::vector<Shape>> groups = {
      {{QuantType::f32, 1}},
      {{QuantType::q8_0, 15}, {QuantType::q8_0, 17}},
      {{QuantType::q4_k, 512}, {QuantType::q4_k, 128}, {QuantType::q6_k, 128}},
      {{QuantType::q4_0, 1000}, {QuantType::f16, 1}, {QuantType::q5_1, 33}},
      {{QuantType::f32, 16}, {QuantType::q4_0, 160}},
      {{QuantType::q4_0, 160}, {QuantType::f32, 16}},
      {{QuantType::q4_k, 4099}},
  };
  for (const std::vector<Shape>& shapes : groups) {
    for (uint64_t max_bytes : {1UL, 2000UL, 9000UL, 30000UL, 65536UL, 1UL << 20, 1UL << 30}) {
      SCOPED_TRACE(format(
          "{} tensors, first {} rows, {} bytes", shapes.size(), shapes[0].n_rows, max_bytes));
      std::vector<GgufTensor> owned;
      for (const Shape& shape : shapes)
        owned.push_back(matrix("t", shape.type, 256, shape.n_rows));
      std::vector<const GgufTensor*> tensors;
      uint64_t total = 0;
      uint64_t largest_panel = 0;
      for (const GgufTensor& tensor : owned) {
        tensors.push_back(&tensor);
        total += tensor.size_bytes;
        largest_panel = std::max(
            largest_panel,
            tensor.size_bytes / tensor.dims[1] * std::min<uint64_t>(tensor.dims[1], kPanelRows));
      }
      WeightPlan plan;
      plan.slices.resize(3);
      plan.streamable_bytes = 7;
      const WeightGroup group = add_group(plan, tensors, max_bytes);
      EXPECT_EQ(group.first_slice, 3U);
      EXPECT_EQ(group.first_slice + group.n_slices, plan.slices.size());
      EXPECT_EQ(group.tensors, tensors);
      EXPECT_EQ(plan.streamable_bytes, 7 + total);
      expect_covers(plan, group, tensors);
      for (uint32_t s = group.first_slice; s < plan.slices.size(); ++s) {
        EXPECT_LE(plan.slices[s].size_bytes, std::max(max_bytes, largest_panel));
      }
    }
  }
}

TEST(Weights, slices_are_few_and_of_about_the_same_size) {
  const GgufTensor gate = matrix("gate", QuantType::q4_k, 2048, 8192);
  const GgufTensor up = matrix("up", QuantType::q6_k, 2048, 8192);
  const uint64_t panel_bytes = quant_bytes(QuantType::q6_k, 2048) * kPanelRows;
  const uint64_t total = gate.size_bytes + up.size_bytes;
  for (uint64_t max_bytes : {1UL << 20, 3UL << 20, 4UL << 20, 5000000UL}) {
    WeightPlan plan;
    const WeightGroup group = add_group(plan, {&gate, &up}, max_bytes);
    EXPECT_LE(group.n_slices, (total + max_bytes - 1) / max_bytes + 2);
    for (const WeightSlice& slice : plan.slices) {
      EXPECT_LE(slice.size_bytes, total / group.n_slices + panel_bytes);
      EXPECT_GE(slice.size_bytes + panel_bytes, total / group.n_slices);
    }
  }
}

TEST(Weights, what_is_no_matrix_is_refused_by_name) {
  const GgufTensor good = matrix("good.weight", QuantType::q8_0, 64, 32);
  GgufTensor vector = good;
  vector.name = "vector.weight";
  vector.dims = {64};
  EXPECT_NE(error_of({&good, &vector}).find("vector.weight: expected a matrix"), std::string::npos);
  GgufTensor cube = good;
  cube.name = "cube.weight";
  cube.dims = {64, 16, 2};
  EXPECT_NE(error_of({&cube}).find("cube.weight: expected a matrix"), std::string::npos);
  EXPECT_NE(error_of({&cube}).find("(64, 16, 2)"), std::string::npos);
  const GgufTensor wide = matrix("wide.weight", QuantType::q8_0, 96, 32);
  EXPECT_NE(
      error_of({&good, &wide}).find("wide.weight: expected 64 columns as in the other tensors"),
      std::string::npos);
  GgufTensor unknown = good;
  unknown.name = "odd.weight";
  unknown.ggml_type = 9999;
  EXPECT_NE(error_of({&unknown}).find("odd.weight: type 9999 is not supported"), std::string::npos);
  GgufTensor cut = good;
  cut.name = "cut.weight";
  cut.size_bytes -= 34;
  EXPECT_NE(error_of({&cut}).find("cut.weight: expected 32 rows of 68 bytes"), std::string::npos);
  GgufTensor narrow = good;
  narrow.name = "narrow.weight";
  narrow.dims = {48, 32};
  EXPECT_NE(error_of({&narrow}).find("multiples of 32"), std::string::npos);
}

TEST(Weights, resident_pieces_are_spread_evenly_and_fill_the_budget) {
  std::vector<uint64_t> sizes;
  for (int layer = 0; layer < 40; ++layer) {
    for (uint64_t size : {700, 500, 900, 910, 905, 880})
      sizes.push_back(size);
  }
  const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  for (double share : {0.0, 0.03, 0.25, 0.5, 0.61, 0.9, 0.999, 1.0, 3.0}) {
    SCOPED_TRACE(share);
    const auto budget = static_cast<uint64_t>(share * static_cast<double>(total));
    const std::vector<bool> is_resident = spread_resident(sizes, budget);
    uint64_t taken = 0;
    uint64_t passed = 0;
    uint64_t smallest_left = UINT64_MAX;
    for (size_t i = 0; i < sizes.size(); ++i) {
      passed += sizes[i];
      if (is_resident[i]) {
        taken += sizes[i];
      } else {
        smallest_left = std::min(smallest_left, sizes[i]);
      }
      const double due = std::min(share, 1.0) * static_cast<double>(passed);
      EXPECT_NEAR(static_cast<double>(taken), due, 1000) << "after piece " << i;
    }
    EXPECT_LE(taken, budget);
    if (share >= 1) {
      EXPECT_EQ(taken, total);
    } else {
      EXPECT_GT(smallest_left, budget - taken) << "a piece would still fit";
    }
  }
  EXPECT_TRUE(spread_resident({}, 100).empty());
}

}  // namespace
}  // namespace nightsweep
