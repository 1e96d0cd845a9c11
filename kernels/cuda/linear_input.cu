// The input of the linear operator: normed or gated, scaled by a power of two a row, rounded to f16
// and put in the order of the tensor cores (linear_layout.h). One block of threads a row; sums and
// scale depend on the row and its length alone.
#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_kernels.h"

namespace nightsweep::cuda {
namespace {

// Columns that a thread turns into 16 bytes: of 32, those of lane t in the operand's order.
constexpr uint32_t kItemCols = 8;

// Column of element i of item t of a group of 32.
__device__ __forceinline__ uint32_t item_col(uint32_t t, uint32_t i) {
  return 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * t + i % 2;
}

template <typename T, typename Combine>
__device__ T reduce_block(T value, T* scratch, Combine combine) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) scratch[warp] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : T{};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  return value;
}

__device__ __forceinline__ float gated(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

// The values of an item; zero past the row's end. All loads are on their way before one is used.
template <InputKind kKind>
__device__ __forceinline__ void
load_item(const InputArgs& args, uint32_t row, uint32_t item, float (&v)[kItemCols]) {
  constexpr bool kGated = kKind == InputKind::gated;
  const float* const x = args.x + size_t{row} * args.n_cols;
  const float* const up = kGated ? args.second + size_t{row} * args.n_cols : nullptr;
  float ups[kItemCols] = {};
  if (args.n_cols % kChunk == 0) {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; i += 2) {
      const uint32_t col = item / 4 * 32 + item_col(item % 4, i);
      const float2 pair = *reinterpret_cast<const float2*>(x + col);
      v[i] = pair.x;
      v[i + 1] = pair.y;
      if constexpr (kGated) {
        const float2 up_pair = *reinterpret_cast<const float2*>(up + col);
        ups[i] = up_pair.x;
        ups[i + 1] = up_pair.y;
      }
    }
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; ++i) {
      const uint32_t col = item / 4 * 32 + item_col(item % 4, i);
      v[i] = col < args.n_cols ? x[col] : 0.0F;
      if constexpr (kGated) ups[i] = col < args.n_cols ? up[col] : 0.0F;
    }
  }
  if constexpr (kGated) {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; ++i)
      v[i] = gated(v[i], ups[i]);
  }
}

template <InputKind kKind, int kItems>
__global__ void __launch_bounds__(1024) input_kernel(const InputArgs args) {
  __shared__ float sums[32];
  __shared__ uint32_t largest[32];
  const uint32_t row = blockIdx.x;
  const uint32_t n_chunks = chunk_count(args.n_cols);
  const uint32_t n_items = n_chunks * (kChunk / kItemCols);
  const bool is_row = row < args.rows;

  // The norm's weights are there before x is.
  constexpr bool kWeightsFirst = kKind == InputKind::rms_norm && kItems <= 2;
  float norm_weights[kWeightsFirst ? kItems : 1][kItemCols];
  if constexpr (kWeightsFirst) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const uint32_t item = threadIdx.x + k * blockDim.x;
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        const uint32_t col = item / 4 * 32 + item_col(item % 4, i);
        norm_weights[k][i] = item < n_items && col < args.n_cols ? args.second[col] : 0.0F;
      }
    }
  }
  wait_for_earlier();
  let_next_start();

  float v[kItems][kItemCols] = {};
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const uint32_t item = threadIdx.x + k * blockDim.x;
    if (is_row && item < n_items) load_item<kKind>(args, row, item, v[k]);
  }

  if constexpr (kKind == InputKind::rms_norm) {
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i)
        sum = fmaf(v[k][i], v[k][i], sum);
    }
    sum = reduce_block(sum, sums, [](float a, float b) { return a + b; });
    const float mean = sum / static_cast<float>(args.n_cols);
    const float inverse = 1.0F / sqrtf(mean + args.epsilon);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const uint32_t item = threadIdx.x + k * blockDim.x;
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        const uint32_t col = item / 4 * 32 + item_col(item % 4, i);
        if (is_row && item < n_items && col < args.n_cols) {
          const float weight =
              kWeightsFirst ? norm_weights[kWeightsFirst ? k : 0][i] : args.second[col];
          v[k][i] = v[k][i] * inverse * weight;
        }
      }
    }
  }

  if (args.values != nullptr && is_row) {
    float* const values = args.values + size_t{row} * args.n_cols;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const uint32_t item = threadIdx.x + k * blockDim.x;
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        const uint32_t col = item / 4 * 32 + item_col(item % 4, i);
        if (item < n_items && col < args.n_cols) values[col] = v[k][i];
      }
    }
  }
  if (args.prepared == nullptr) return;

  // By bits, so that a NaN is larger than all numbers.
  uint32_t top = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; ++i)
      top = max(top, __float_as_uint(v[k][i]) & 0x7FFFFFFFU);
  }
  top = reduce_block(top, largest, [](uint32_t a, uint32_t b) { return max(a, b); });
  // The largest value comes to lie in [2^14, 2^15). What is not finite stays so.
  const int exponent =
      top == 0 || top >= 0x7F800000U ? 0 : min(14 - (static_cast<int>(top >> 23) - 127), 126);
  const float scale = __int_as_float((exponent + 127) << 23);
  if (threadIdx.x == 0) args.scale[row] = __int_as_float((127 - exponent) << 23);

  // Of this row's group: the first chunk, and how far it is from one chunk to the next.
  uint8_t* group = args.prepared + size_t{row / 8} * n_chunks * kInputChunkBytes;
  uint32_t chunk_stride = kInputChunkBytes;
  if (args.tile_rows != 0) {
    const uint32_t tile_groups = args.tile_rows / 8;
    const uint32_t first = row / args.tile_rows * tile_groups;
    group = args.prepared + (size_t{first} * n_chunks + (row / 8 - first)) * kInputChunkBytes;
    chunk_stride = min(tile_groups, (args.rows + 7) / 8 - first) * kInputChunkBytes;
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const uint32_t item = threadIdx.x + k * blockDim.x;
    if (item >= n_items) continue;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(v[k][2 * i] * scale, v[k][2 * i + 1] * scale);
      words[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    uint8_t* const chunk = group + size_t{item / 8} * chunk_stride;
    if (args.tile_rows != 0) {
      uint8_t* const line = chunk + 128 * (row % 8);
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t piece = item / 4 % 2 * 4 + i;
        *reinterpret_cast<uint32_t*>(line + 16 * (piece ^ row % 8) + 4 * (item % 4)) = words[i];
      }
    } else {
      *reinterpret_cast<uint4*>(chunk + 512 * (item / 4 % 2) + 64 * (row % 8) + 16 * (item % 4)) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

template <InputKind kKind, int kItems>
void start(const InputArgs& args, uint32_t threads, cudaStream_t stream) {
  const uint32_t grid = args.prepared != nullptr
                            ? (args.rows + kInputRowStep - 1) / kInputRowStep * kInputRowStep
                            : args.rows;
  launch(
      "linear_input", input_kernel<kKind, kItems>, {.grid = {grid}, .threads = threads}, stream,
      args);
}

template <InputKind kKind>
void launch_kind(const InputArgs& args, cudaStream_t stream) {
  const uint32_t n_items = chunk_count(args.n_cols) * (kChunk / kItemCols);
  // The number of threads is part of the order of summation: it follows from n_cols alone.
  if (n_items <= 256) {
    start<kKind, 1>(args, 256, stream);
  } else if (n_items <= 1024) {
    start<kKind, 1>(args, 1024, stream);
  } else if (n_items <= 2048) {
    start<kKind, 2>(args, 1024, stream);
  } else if (n_items <= 4096) {
    start<kKind, 4>(args, 1024, stream);
  } else {
    start<kKind, 8>(args, 1024, stream);
  }
}

}  // namespace

void launch_input(InputKind kind, const InputArgs& args, cudaStream_t stream) {
  switch (kind) {
    case InputKind::plain:
      return launch_kind<InputKind::plain>(args, stream);
    case InputKind::rms_norm:
      return launch_kind<InputKind::rms_norm>(args, stream);
    case InputKind::gated:
      return launch_kind<InputKind::gated>(args, stream);
  }
}

}  // namespace nightsweep::cuda
