// The linear operator of the CUDA device: out = x . W^T for packed quantized weights on tensor
// cores.
//
// BITS. An output depends on its row of x and on its row of W alone: on no other row, not on the
// number of rows, nor on how matrices are cut at multiples of 16 outputs or grouped into parts. See
// "the chain" in linear_layout.h.
//
// ROUNDING, against the float32 values of the reference decoder (kernels/quant.h):
//   x      to f16, after a power of two a row that brings its largest value to [2^14, 2^15); a
//   value
//          2^-29 times the row's largest still has all 11 bits;
//   W      Q4_0 Q4_1 Q5_0 Q5_1 Q8_0: d q + m in one rounding to f16; K-quants: the products d s and
//          dmin m to f16, then as before; F32 and BF16 to f16; F16 not at all. All after a power
//          of two a row of W, so that range is no concern;
//   sums   in float32 inside the tensor core and between its steps.
// apply_exact() rounds only as float32 does.
//
// Memory is the device's; nothing here allocates any or waits. Calls queue work in a stream, the
// same for all calls that use one workspace. A status of CUDA other than success throws
// Error(device).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/device.h"

namespace nightsweep::cuda {

// Rows that were rounded and ordered for the tensor cores.
struct PreparedInput {
  std::byte* data = nullptr;
  uint32_t rows = 0;
  uint32_t n_cols = 0;
  uint32_t tile_rows = 0;  // the order: 0, or that of the wide tile with as many rows
};
// For a kernel that writes it.
struct InputPlace;
InputPlace place_of(const PreparedInput& input);

// Whether all weights have stood since before the stream was last waited for. Then they are read
// before the kernels in flight are over.
enum class WeightAge { fresh, settled };

enum class TileShape : uint32_t;
struct LinearArgs;
struct KernelEntry;
struct LinearOptions {
  bool allow_wide = true;          // warpgroup products, where the GPU has them
  std::optional<TileShape> tile;   // one tile for every number of rows, for tests and benchmarks
  std::optional<uint32_t> blocks;  // at most so many a launch, for tests: each then has more to do
};

class LinearOperator {
 public:
  // For the current CUDA device. On Hopper, warpgroup products serve many rows if a comparison with
  // mma.sync, made here, finds the same bits.
  explicit LinearOperator(const LinearOptions& options = {});
  bool has_wide_tiles() const { return has_wide_; }

  // Memory that apply() needs between its blocks, whatever the shapes. set_workspace() clears what
  // must be clear; `memory` (256-byte aligned) stays with the operator.
  size_t workspace_bytes() const { return counter_bytes_ + partial_bytes_; }
  void set_workspace(std::byte* memory, cudaStream_t stream);

  // Rows of blocks as in the file -> packed, both on the device. `packed` is 16-byte aligned.
  static size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols);
  void pack(const MatrixView& file, std::byte* packed, cudaStream_t stream) const;
  // out[i] = row ids[i] of the table, with the bits of the reference decoder. ids: (count), on the
  // device
  void embed(
      const MatrixView& table,
      const uint32_t* ids,
      uint32_t count,
      float* out,
      cudaStream_t stream) const;

  // Room for a prepared input, 256-byte aligned.
  static size_t input_bytes(uint32_t rows, uint32_t n_cols);
  // One that another operator writes, by place_of().
  PreparedInput input_at(std::byte* memory, uint32_t rows, uint32_t n_cols) const;
  // x: (rows, n_cols)
  PreparedInput prepare(
      const float* x,
      uint32_t rows,
      uint32_t n_cols,
      std::byte* memory,
      cudaStream_t stream) const;
  // x / sqrt(mean(x^2) + epsilon) * weight; also to `values` (rows, n_cols) unless null. `weight`
  // has stood since before the stream was last waited for.
  PreparedInput prepare_rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t n_cols,
      float* values,
      std::byte* memory,
      cudaStream_t stream) const;
  // silu(gate) * up; also to `values`, which may be `gate`, unless null.
  PreparedInput prepare_gated(
      const float* gate,
      const float* up,
      uint32_t rows,
      uint32_t n_cols,
      float* values,
      std::byte* memory,
      cudaStream_t stream) const;
  // The same without a prepared input, with the same bits in `values`.
  void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t n_cols,
      float* values,
      cudaStream_t stream) const;

  // Applies all parts, packed, to the input. Parts of one type share a launch.
  void apply(
      const PreparedInput& input,
      std::span<const LinearPart> parts,
      cudaStream_t stream,
      WeightAge age = WeightAge::fresh) const;
  // x: (rows, n_cols), not rounded. Parts packed or as in the file.
  void apply_exact(
      const float* x,
      uint32_t rows,
      uint32_t n_cols,
      std::span<const LinearPart> parts,
      cudaStream_t stream) const;

 private:
  static constexpr uint32_t kMaxType = 31;
  static constexpr uint32_t kMaxShapes = 9;
  static bool wide_products_agree();
  void prepare_kernel(QuantType type, TileShape shape);
  TileShape shape_for(uint32_t rows) const;
  TileShape fitting_shape(QuantType type, LinearArgs& args) const;
  // Of a block of a launch.
  size_t shared_bytes(TileShape shape, const KernelEntry& kernel, uint32_t n_blocks) const;
  // Blocks that run at once.
  uint32_t resident_of(QuantType type, TileShape shape) const {
    return resident_[static_cast<uint32_t>(type)][static_cast<uint32_t>(shape)];
  }

  LinearOptions options_;
  bool has_wide_ = false;
  uint32_t n_multiprocessors_ = 0;
  uint32_t resident_[kMaxType][kMaxShapes] = {};
  size_t counter_bytes_ = 0;
  size_t partial_bytes_ = 0;
  std::byte* workspace_ = nullptr;
};

}  // namespace nightsweep::cuda
