#include "engine/weights.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "kernels/device.h"

namespace nightsweep {

namespace {

// A matrix as the cutter sees it: panels of kPanelRows rows, the last one perhaps smaller.
struct Matrix {
  const GgufTensor* tensor = nullptr;
  uint32_t n_rows = 0;
  uint64_t row_bytes = 0;

  uint64_t n_panels() const { return (uint64_t{n_rows} + kPanelRows - 1) / kPanelRows; }
  uint64_t panel_bytes(uint64_t panel) const {
    return row_bytes * std::min<uint64_t>(kPanelRows, n_rows - panel * kPanelRows);
  }
};

Matrix as_matrix(const GgufTensor& tensor, uint64_t n_cols) {
  const bool is_matrix =
      tensor.dims.size() >= 2 && tensor.dims[0] > 0 && tensor.dims[1] > 0 &&
      std::all_of(tensor.dims.begin() + 2, tensor.dims.end(), [](uint64_t d) { return d == 1; });
  if (!is_matrix) {
    fail(
        ErrorKind::model, "{}: expected a matrix of two dimensions, found ({})", tensor.name,
        fmt::join(tensor.dims, ", "));
  }
  if (tensor.dims[0] != n_cols) {
    fail(
        ErrorKind::model, "{}: expected {} columns as in the other tensors of its step, found {}",
        tensor.name, n_cols, tensor.dims[0]);
  }
  const QuantTraits* traits = find_quant_traits(tensor.ggml_type);
  if (traits == nullptr || !traits->can_compute) {
    fail(
        ErrorKind::model,
        "{}: type {} is not supported; convert the model to a type that `inspect` lists as "
        "supported",
        tensor.name, traits == nullptr ? format("{}", tensor.ggml_type) : traits->name);
  }
  if (n_cols % traits->block_elems != 0) {
    fail(
        ErrorKind::model, "{}: expected columns in multiples of {} for type {}, found {}",
        tensor.name, traits->block_elems, traits->name, n_cols);
  }
  const uint64_t row_bytes = n_cols / traits->block_elems * traits->block_bytes;
  const uint64_t n_rows = tensor.dims[1];
  if (n_rows > std::numeric_limits<uint32_t>::max() ||
      n_cols > std::numeric_limits<uint32_t>::max() || row_bytes == 0 ||
      tensor.size_bytes / row_bytes != n_rows || tensor.size_bytes % row_bytes != 0) {
    fail(
        ErrorKind::model, "{}: expected {} rows of {} bytes, found {} bytes", tensor.name, n_rows,
        row_bytes, tensor.size_bytes);
  }
  return {&tensor, static_cast<uint32_t>(n_rows), row_bytes};
}

void append_panel(WeightSlice& slice, const Matrix& matrix, uint64_t panel) {
  const auto first_row = static_cast<uint32_t>(panel * kPanelRows);
  if (slice.extents.empty() || slice.extents.back().tensor != matrix.tensor) {
    slice.extents.push_back(
        {matrix.tensor, first_row, 0, matrix.tensor->file,
         matrix.tensor->offset + first_row * matrix.row_bytes, 0});
  }
  WeightExtent& extent = slice.extents.back();
  extent.n_rows += std::min(kPanelRows, matrix.n_rows - first_row);
  extent.size_bytes += matrix.panel_bytes(panel);
  slice.size_bytes += matrix.panel_bytes(panel);
}

// A panel belongs to the one of n_slices equal parts of all bytes in which its middle lies.
std::vector<WeightSlice>
cut(const std::vector<Matrix>& matrices, uint64_t total_bytes, uint64_t n_slices) {
  std::vector<WeightSlice> slices;
  double begin = 0;
  uint64_t open_part = 0;
  for (const Matrix& matrix : matrices) {
    for (uint64_t panel = 0; panel < matrix.n_panels(); ++panel) {
      const auto panel_bytes = static_cast<double>(matrix.panel_bytes(panel));
      const double middle = (begin + panel_bytes / 2) / static_cast<double>(total_bytes);
      const auto part = static_cast<uint64_t>(middle * static_cast<double>(n_slices));
      if (slices.empty() || part != open_part) slices.emplace_back();
      open_part = part;
      append_panel(slices.back(), matrix, panel);
      begin += panel_bytes;
    }
  }
  return slices;
}

}  // namespace

WeightGroup add_group(
    WeightPlan& plan,
    const std::vector<const GgufTensor*>& tensors,
    uint64_t max_slice_bytes) {
  if (tensors.empty() || max_slice_bytes == 0) {
    fail(ErrorKind::internal, "add_group: no tensors, or slices of no bytes");
  }
  std::vector<Matrix> matrices;
  uint64_t total_bytes = 0;
  uint64_t limit_bytes = max_slice_bytes;
  for (const GgufTensor* tensor : tensors) {
    const uint64_t n_cols = tensors[0]->dims.empty() ? 0 : tensors[0]->dims[0];
    matrices.push_back(as_matrix(*tensor, n_cols));
    total_bytes += tensor->size_bytes;
    limit_bytes = std::max(limit_bytes, matrices.back().panel_bytes(0));
  }

  // Whole panels seldom fill max_slice_bytes to the brim: one or two slices more than that may be
  // needed.
  std::vector<WeightSlice> slices;
  bool fits = false;
  for (uint64_t n_slices = (total_bytes + limit_bytes - 1) / limit_bytes; !fits; ++n_slices) {
    slices = cut(matrices, total_bytes, n_slices);
    fits = std::all_of(slices.begin(), slices.end(), [&](const WeightSlice& slice) {
      return slice.size_bytes <= limit_bytes;
    });
  }

  WeightGroup group{
      tensors, static_cast<uint32_t>(plan.slices.size()), static_cast<uint32_t>(slices.size())};
  std::move(slices.begin(), slices.end(), std::back_inserter(plan.slices));
  plan.streamable_bytes += total_bytes;
  return group;
}

WeightWindow add_window(WeightPlan& plan, const std::vector<const WeightGroup*>& groups) {
  WeightWindow window{.first_slice = groups.front()->first_slice};
  for (const WeightGroup* group : groups)
    window.n_slices += group->n_slices;
  plan.windows.push_back(window);
  return window;
}

std::vector<bool> spread_resident(const std::vector<uint64_t>& sizes_bytes, uint64_t budget_bytes) {
  const uint64_t total_bytes = std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), uint64_t{0});
  std::vector<bool> is_resident(sizes_bytes.size(), false);
  if (total_bytes == 0) return is_resident;
  const double share =
      std::min(1.0, static_cast<double>(budget_bytes) / static_cast<double>(total_bytes));
  uint64_t left_bytes = budget_bytes;
  const auto take = [&](size_t i) {
    is_resident[i] = true;
    left_bytes -= sizes_bytes[i];
  };

  // As a line is drawn on a grid: each piece adds its share of resident bytes, and a piece is taken
  // when half of it is due.
  double due_bytes = 0;
  for (size_t i = 0; i < sizes_bytes.size(); ++i) {
    const auto size_bytes = static_cast<double>(sizes_bytes[i]);
    due_bytes += share * size_bytes;
    if (due_bytes < size_bytes / 2 || sizes_bytes[i] > left_bytes) continue;
    due_bytes -= size_bytes;
    take(i);
  }
  for (size_t i = 0; i < sizes_bytes.size(); ++i) {
    if (!is_resident[i] && sizes_bytes[i] <= left_bytes) take(i);
  }
  return is_resident;
}

}  // namespace nightsweep
