#include "kernels/cuda/linear.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {
namespace {

constexpr size_t kWorkspaceAlignment = 256;

size_t align(size_t n_bytes) {
  return (n_bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

uint32_t divide_up(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}

// The text is made only when it is needed: launches are frequent.
void check(cudaError_t status, const char* doing, QuantType type) {
  if (status == cudaSuccess) return;
  fail_status(status, format("{} of {}", doing, quant_traits(type).name));
}

constexpr std::array kTypes = {QuantType::f32,  QuantType::f16,  QuantType::bf16, QuantType::q4_0,
                               QuantType::q4_1, QuantType::q5_0, QuantType::q5_1, QuantType::q8_0,
                               QuantType::q4_k, QuantType::q5_k, QuantType::q6_k};

template <QuantType kType>
const KernelEntry& kernel_of(TileShape shape) {
  const auto i = static_cast<uint32_t>(shape);
  return is_wide(shape) ? linear_wide_kernels<kType>()[i - kFirstWideShape]
                        : linear_kernels<kType>()[i];
}

const KernelEntry& kernel_of(QuantType type, TileShape shape) {
  switch (type) {
    case QuantType::f32:
      return kernel_of<QuantType::f32>(shape);
    case QuantType::f16:
      return kernel_of<QuantType::f16>(shape);
    case QuantType::bf16:
      return kernel_of<QuantType::bf16>(shape);
    case QuantType::q4_0:
      return kernel_of<QuantType::q4_0>(shape);
    case QuantType::q4_1:
      return kernel_of<QuantType::q4_1>(shape);
    case QuantType::q5_0:
      return kernel_of<QuantType::q5_0>(shape);
    case QuantType::q5_1:
      return kernel_of<QuantType::q5_1>(shape);
    case QuantType::q8_0:
      return kernel_of<QuantType::q8_0>(shape);
    case QuantType::q4_k:
      return kernel_of<QuantType::q4_k>(shape);
    case QuantType::q5_k:
      return kernel_of<QuantType::q5_k>(shape);
    case QuantType::q6_k:
      return kernel_of<QuantType::q6_k>(shape);
  }
  fail(ErrorKind::internal, "no CUDA kernel for tensor type {}", static_cast<uint32_t>(type));
}

// So few blocks of the kernel that follows may start in the tail of this one: they need not spread.
constexpr uint32_t kFewRows = 16;

// More than half of a multiprocessor's 228 KiB (9.0, of the wide tiles).
constexpr size_t kSharedBytesOfOne = size_t{115} << 10;

// Blocks of a kernel that run at once on a multiprocessor; more would not help.
constexpr uint32_t kMaxBlocksPerMultiprocessor = 4;

size_t tile_bytes(TileShape shape) {
  const TileTraits traits = tile_traits(shape);
  return size_t{traits.outputs} * traits.rows * sizeof(float);
}

float* scales_of(const PreparedInput& input) {
  const size_t groups = divide_up(input.rows, kInputRowStep);
  return reinterpret_cast<float*>(
      input.data + groups * chunk_count(input.n_cols) * kInputChunkBytes);
}

void run_input(InputKind kind, InputArgs args, const PreparedInput* input, cudaStream_t stream) {
  if (args.rows == 0) return;
  if (args.n_cols > kMaxInputCols) {
    fail(
        ErrorKind::internal, "the linear operator takes rows of at most {} values, got {}",
        kMaxInputCols, args.n_cols);
  }
  if (input != nullptr) {
    args.prepared = place_of(*input);
  }
  launch_input(kind, args, stream);
}

PartArgs part_args(const LinearPart& part) {
  PartArgs args;
  args.weight = reinterpret_cast<const uint8_t*>(part.weight.data);
  args.bias = part.bias;
  args.out = part.out;
  args.n_rows = part.weight.n_rows;
  args.out_stride = part.out_stride;
  args.out_column = part.out_column;
  args.accumulate = part.accumulate;
  return args;
}

void set_tiles(LinearArgs& args, uint32_t tile_outputs) {
  args.n_tiles = 0;
  for (uint32_t i = 0; i < args.n_parts; ++i) {
    args.parts[i].first_tile = args.n_tiles;
    args.n_tiles += divide_up(args.parts[i].n_rows, tile_outputs);
  }
}

// Calls run(type, args) for each group of parts that can share a launch.
template <typename Run>
void for_groups(
    std::span<const LinearPart> parts,
    uint32_t rows,
    uint32_t n_cols,
    WeightLayout layout,
    const Run& run) {
  for (const QuantType type : kTypes) {
    LinearArgs args;
    args.rows = rows;
    args.n_chunks = chunk_count(n_cols);
    const auto flush = [&] {
      if (args.n_parts != 0) run(type, args);
      args.n_parts = 0;
    };
    for (const LinearPart& part : parts) {
      if (part.weight.n_cols != n_cols) {
        fail(
            ErrorKind::internal, "a matrix of {} columns was applied to an input of {}",
            part.weight.n_cols, n_cols);
      }
      if (part.weight.type != type || part.weight.layout != layout || part.weight.n_rows == 0) {
        continue;
      }
      args.parts[args.n_parts++] = part_args(part);
      if (args.n_parts == kMaxParts) flush();
    }
    flush();
  }
}

}  // namespace

LinearOperator::LinearOperator(const LinearOptions& options) : options_(options) {
  int device = 0;
  int value = 0;
  int major = 0;
  int minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  const auto get = [&](int& to, cudaDeviceAttr attribute) {
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&to, attribute, device);
  };
  get(value, cudaDevAttrMultiProcessorCount);
  get(major, cudaDevAttrComputeCapabilityMajor);
  get(minor, cudaDevAttrComputeCapabilityMinor);
  check(status, "reading the GPU's attributes for the linear operator");
  n_multiprocessors_ = static_cast<uint32_t>(value);
  counter_bytes_ = align(n_multiprocessors_ * kMaxBlocksPerMultiprocessor * sizeof(uint32_t));
  has_wide_ = options.allow_wide && major == 9 && minor == 0 && wide_products_agree();
  for (const QuantType type : kTypes) {
    for (uint32_t i = 0; i < (has_wide_ ? kTileShapes : kFirstWideShape); ++i)
      prepare_kernel(type, static_cast<TileShape>(i));
  }
}

bool LinearOperator::wide_products_agree() {
  uint32_t* differences = nullptr;
  uint32_t count = 0;
  const QuantType type = QuantType::f16;
  check(
      cudaMalloc(reinterpret_cast<void**>(&differences), sizeof *differences), "comparing products",
      type);
  cudaError_t status = cudaMemset(differences, 0, sizeof *differences);
  if (status == cudaSuccess) {
    launch_compare_products(differences, nullptr);
    status = cudaGetLastError();
  }
  // A program without code for sm_90a has no such kernel.
  const bool has_code = status != cudaErrorNoKernelImageForDevice;
  if (!has_code) status = cudaSuccess;
  if (status == cudaSuccess) {
    status = cudaMemcpy(&count, differences, sizeof count, cudaMemcpyDeviceToHost);
  }
  cudaFree(differences);
  check(status, "comparing products", type);
  return has_code && count == 0;
}

void LinearOperator::prepare_kernel(QuantType type, TileShape shape) {
  const KernelEntry& kernel = kernel_of(type, shape);
  const char* const doing = "preparing the linear operator";
  if (kernel.shared_bytes != 0) {
    check(
        cudaFuncSetAttribute(
            kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(shared_bytes(shape, kernel, 1))),
        doing, type);
  }
  int per_multiprocessor = 0;
  check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &per_multiprocessor, kernel.function, static_cast<int>(tile_traits(shape).threads),
          kernel.shared_bytes),
      doing, type);
  if (per_multiprocessor == 0) {
    fail(
        ErrorKind::device, "CUDA: the linear operator for {} does not fit this GPU",
        quant_traits(type).name);
  }
  const uint32_t resident =
      n_multiprocessors_ *
      std::min(static_cast<uint32_t>(per_multiprocessor), kMaxBlocksPerMultiprocessor);
  resident_[static_cast<uint32_t>(type)][static_cast<uint32_t>(shape)] = resident;
  if (tile_traits(shape).stages != 0) {
    partial_bytes_ = std::max(partial_bytes_, kSplits * resident * tile_bytes(shape));
  }
}

TileShape LinearOperator::shape_for(uint32_t rows) const {
  if (options_.tile) return *options_.tile;
  if (rows <= 8) return TileShape::rows_8;
  if (rows <= 16) return TileShape::rows_16;
  if (rows <= 32) return has_wide_ ? TileShape::wide_32 : TileShape::rows_32;
  if (rows <= 64) return has_wide_ ? TileShape::wide_64 : TileShape::rows_64;
  return has_wide_ ? TileShape::wide_128 : TileShape::rows_128;
}

PreparedInput LinearOperator::input_at(std::byte* memory, uint32_t rows, uint32_t n_cols) const {
  const TileShape shape = shape_for(rows);
  return {memory, rows, n_cols, is_wide(shape) ? tile_traits(shape).rows : 0};
}

void LinearOperator::set_workspace(std::byte* memory, cudaStream_t stream) {
  workspace_ = memory;
  check(
      cudaMemsetAsync(memory, 0, counter_bytes_, stream), "clearing the counters", QuantType::f32);
}

size_t LinearOperator::packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) {
  return packed_matrix_bytes(type, n_rows, n_cols);
}

void LinearOperator::pack(const MatrixView& file, std::byte* packed, cudaStream_t stream) const {
  if (file.n_rows == 0) return;
  launch_pack(
      file.type, reinterpret_cast<const uint8_t*>(file.data), file.n_rows, file.n_cols,
      reinterpret_cast<uint8_t*>(packed), stream);
  check(cudaGetLastError(), "packing", file.type);
}

void LinearOperator::embed(
    const MatrixView& table,
    const uint32_t* ids,
    uint32_t count,
    float* out,
    cudaStream_t stream) const {
  if (count == 0) return;
  launch_embed(
      table.type, reinterpret_cast<const uint8_t*>(table.data),
      table.layout == WeightLayout::packed, table.n_cols, ids, count, out, stream);
  check(cudaGetLastError(), "embedding", table.type);
}

size_t LinearOperator::input_bytes(uint32_t rows, uint32_t n_cols) {
  return prepared_input_bytes(rows, n_cols);
}

InputPlace place_of(const PreparedInput& input) {
  return {
      .values = reinterpret_cast<uint8_t*>(input.data),
      .scales = scales_of(input),
      .rows = input.rows,
      .n_chunks = chunk_count(input.n_cols),
      .tile_rows = input.tile_rows};
}

PreparedInput LinearOperator::prepare(
    const float* x,
    uint32_t rows,
    uint32_t n_cols,
    std::byte* memory,
    cudaStream_t stream) const {
  const PreparedInput input = input_at(memory, rows, n_cols);
  InputArgs args;
  args.x = x;
  args.rows = rows;
  args.n_cols = n_cols;
  args.n_multiprocessors = n_multiprocessors_;
  run_input(InputKind::plain, args, &input, stream);
  return input;
}

PreparedInput LinearOperator::prepare_rms_norm(
    const float* x,
    const float* weight,
    float epsilon,
    uint32_t rows,
    uint32_t n_cols,
    float* values,
    std::byte* memory,
    cudaStream_t stream) const {
  const PreparedInput input = input_at(memory, rows, n_cols);
  InputArgs args{x, weight, epsilon, rows, n_cols, values};
  run_input(InputKind::rms_norm, args, &input, stream);
  return input;
}

PreparedInput LinearOperator::prepare_gated(
    const float* gate,
    const float* up,
    uint32_t rows,
    uint32_t n_cols,
    float* values,
    std::byte* memory,
    cudaStream_t stream) const {
  const PreparedInput input = input_at(memory, rows, n_cols);
  InputArgs args{gate, up, 0.0F, rows, n_cols, values};
  args.n_multiprocessors = n_multiprocessors_;
  run_input(InputKind::gated, args, &input, stream);
  return input;
}

void LinearOperator::rms_norm(
    const float* x,
    const float* weight,
    float epsilon,
    uint32_t rows,
    uint32_t n_cols,
    float* values,
    cudaStream_t stream) const {
  InputArgs args{x, weight, epsilon, rows, n_cols, values};
  run_input(InputKind::rms_norm, args, nullptr, stream);
}

void LinearOperator::apply(
    const PreparedInput& input,
    std::span<const LinearPart> parts,
    cudaStream_t stream,
    WeightAge age) const {
  if (input.rows == 0) return;
  if (input.tile_rows != input_at(nullptr, input.rows, input.n_cols).tile_rows) {
    fail(ErrorKind::internal, "the input was prepared by another linear operator");
  }
  for (const LinearPart& part : parts) {
    if (part.weight.layout != WeightLayout::packed) {
      fail(ErrorKind::internal, "the CUDA linear operator takes packed weights");
    }
  }
  uint32_t n_groups = 0;
  const auto count = [&](QuantType, LinearArgs&) { ++n_groups; };
  for_groups(parts, input.rows, input.n_cols, WeightLayout::packed, count);
  uint32_t group = 0;
  uint32_t first_counter = 0;
  size_t partial_at = 0;
  const auto run = [&](QuantType type, LinearArgs& args) {
    const TileShape shape = fitting_shape(type, args);
    const TileTraits traits = tile_traits(shape);
    args.input = reinterpret_cast<const uint8_t*>(input.data);
    args.input_scale = scales_of(input);
    const KernelEntry& kernel = kernel_of(type, shape);
    const uint32_t resident =
        std::min(resident_of(type, shape), options_.blocks.value_or(UINT32_MAX));
    uint32_t n_units = args.n_tiles;
    if (traits.stages != 0) {
      const uint32_t n_tiles = args.n_tiles * divide_up(input.rows, traits.rows);
      // Splits go to blocks of their own when that fills the machine better.
      const bool is_apart =
          is_wide(shape) || (n_tiles <= resident && divide_up(kSplits * n_tiles, resident) <
                                                        kSplits * divide_up(n_tiles, resident));
      args.splits_in_turn = is_apart ? 1 : kSplits;
      n_units = n_tiles * (is_apart ? kSplits : 1);
    }
    const uint32_t n_blocks = std::min(n_units, resident);
    // Launches beside each other have counters and sums of their own; the small tiles need neither.
    const uint32_t n_counters = traits.stages == 0 ? 0 : n_blocks;
    const size_t n_partial_bytes = n_counters * kSplits * tile_bytes(shape);
    const bool may_be_beside = traits.stages == 0 || is_wide(shape);
    const bool has_room = partial_at + n_partial_bytes <= partial_bytes_ &&
                          (first_counter + n_counters) * sizeof(uint32_t) <= counter_bytes_;
    args.is_beside = may_be_beside && group > 0 && has_room;
    args.lets_next = group + 1 < n_groups ? may_be_beside : input.rows <= kFewRows;
    if (!args.is_beside) first_counter = partial_at = 0;
    args.arrived = reinterpret_cast<uint32_t*>(workspace_) + first_counter;
    args.partials = reinterpret_cast<float4*>(workspace_ + counter_bytes_ + partial_at);
    first_counter += n_counters;
    partial_at += n_partial_bytes;
    ++group;
    void* kernel_args[] = {&args};
    const LaunchSettings settings(
        {.grid = {n_blocks},
         .threads = traits.threads,
         .shared_bytes = shared_bytes(shape, kernel, n_blocks)},
        stream, age == WeightAge::settled);
    check(
        cudaLaunchKernelExC(settings.get(), kernel.function, kernel_args), "the linear operator",
        type);
  };
  for_groups(parts, input.rows, input.n_cols, WeightLayout::packed, run);
}

// Blocks that start while those of the kernel before leave would sit down two on one multiprocessor
// and leave others empty: where each can have its own, they take too much memory for two.
size_t LinearOperator::shared_bytes(TileShape shape, const KernelEntry& kernel, uint32_t n_blocks)
    const {
  return is_wide(shape) && n_blocks <= n_multiprocessors_
             ? std::max<size_t>(kernel.shared_bytes, kSharedBytesOfOne)
             : kernel.shared_bytes;
}

// Sets the tiles of a launch. Where the tiles for up to 64 rows are fewer than the blocks that run
// at once, they are halved.
TileShape LinearOperator::fitting_shape(QuantType type, LinearArgs& args) const {
  TileShape shape = shape_for(args.rows);
  set_tiles(args, tile_traits(shape).outputs);
  if (shape == TileShape::wide_64 && !options_.tile &&
      args.n_tiles * kSplits < resident_of(type, shape)) {
    shape = TileShape::narrow_64;
    set_tiles(args, tile_traits(shape).outputs);
  }
  return shape;
}

void LinearOperator::apply_exact(
    const float* x,
    uint32_t rows,
    uint32_t n_cols,
    std::span<const LinearPart> parts,
    cudaStream_t stream) const {
  if (rows == 0) return;
  for (const WeightLayout layout : {WeightLayout::packed, WeightLayout::file}) {
    const auto run = [&](QuantType type, LinearArgs& args) {
      set_tiles(args, kPanel);
      launch_exact(type, args, layout == WeightLayout::packed, n_cols, x, stream);
      check(cudaGetLastError(), "the exact linear operator", type);
    };
    for_groups(parts, rows, n_cols, layout, run);
  }
}

}  // namespace nightsweep::cuda
