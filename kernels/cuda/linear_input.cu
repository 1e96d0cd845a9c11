// The input of the linear operator: normed or gated, scaled by a power of two a row, rounded to f16
// and put in the order of the tensor cores (linear_layout.h). One block of threads a row, or
// several that share it; sums and scale depend on the row and its length alone.
#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/swiglu.cuh"

namespace nightsweep::cuda {
namespace {

// An item of a row: columns that a thread turns into 16 bytes.
constexpr uint32_t kItemCols = 8;

// The sum and the largest of a block's threads.
struct Totals {
  float sum;
  uint32_t largest;
};

__device__ __forceinline__ uint32_t largest_in_warp(uint32_t value) {
  return __reduce_max_sync(0xFFFFFFFFU, value);
}

__device__ __forceinline__ float sum_in_warp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  return value;
}

__device__ __forceinline__ Totals totals_of_block(Totals own, Totals (&warps)[32]) {
  own = {sum_in_warp(own.sum), largest_in_warp(own.largest)};
  const uint32_t lane = threadIdx.x % 32;
  if (lane == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  own = lane < blockDim.x / 32 ? warps[lane] : Totals{0.0F, 0};
  return {sum_in_warp(own.sum), largest_in_warp(own.largest)};
}

__device__ __forceinline__ uint32_t largest_in_block(uint32_t value, uint32_t (&warps)[32]) {
  value = largest_in_warp(value);
  const uint32_t lane = threadIdx.x % 32;
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return largest_in_warp(lane < blockDim.x / 32 ? warps[lane] : 0);
}

// BLOCKS THAT SHARE A ROW, where the GPU has clusters (9.0 and later): each warp tells its largest
// value to all of them. Says "I run" first, and before it writes to others waits for theirs.
constexpr uint32_t kMostOfShare = 1024;  // items of a block, each of a thread

__device__ __forceinline__ void say_that_block_runs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

template <uint32_t kSharers>
__device__ __forceinline__ uint32_t
largest_of_sharers(uint32_t value, uint32_t (&warps)[kSharers * 32]) {
  value = largest_in_warp(value);
#if __CUDA_ARCH__ >= 900
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t n_warps = blockDim.x / 32;
  const uint32_t own = blockIdx.x % kSharers * n_warps + threadIdx.x / 32;
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (lane < kSharers) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&warps[own]));
    asm volatile(
        "{\n"
        ".reg .u32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "st.shared::cluster.u32 [there], %2;\n"
        "}\n" ::"r"(at),
        "r"(lane), "r"(value)
        : "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  value = 0;
  for (uint32_t i = lane; i < kSharers * n_warps; i += 32)
    value = max(value, warps[i]);
  value = largest_in_warp(value);
#endif
  return value;
}

// The values of an item of a row; zero past its end.
__device__ __forceinline__ void
load_item(const float* row, uint32_t n_cols, uint32_t item, float (&v)[kItemCols]) {
  const float* const from = row + item * kItemCols;
  if (n_cols % kChunk == 0) {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kItemCols; ++i)
      v[i] = item * kItemCols + i < n_cols ? from[i] : 0.0F;
  }
}

__device__ __forceinline__ uint32_t magnitude(float value) {
  return __float_as_uint(value) & 0x7FFFFFFFU;
}

// Of which values what follows holds: none is so large or so small that a product with another
// factor would leave the range of float, or so near a power of two that its last bits could change
// the exponent.
__device__ __forceinline__ bool has_sure_exponent(float value) {
  constexpr uint32_t kMargin = 64;
  const uint32_t mantissa = __float_as_uint(value) & 0x7FFFFFU;
  return value > 0x1p-100F && value < 0x1p+100F && mantissa >= kMargin &&
         mantissa <= 0x7FFFFFU - kMargin;
}

// kSharers blocks a row. A norm's block of 512 threads has more than 32 registers a thread, so that
// only one finds room beside a block of the linear operator before it (`narrow_64`): two of them on
// one multiprocessor, while others are empty, cost 0.7 us.
template <InputKind kKind, int kItems, int kMostThreads, int kMinBlocks, uint32_t kSharers>
__global__ void __launch_bounds__(kMostThreads, kMinBlocks) input_kernel(const InputArgs args) {
  constexpr bool kIsShared = kSharers > 1;
  static_assert(!kIsShared || (kKind != InputKind::rms_norm && kItems == 1));
  __shared__ Totals totals[32];
  __shared__ uint32_t largest[kSharers * 32];
  const uint32_t row = blockIdx.x / kSharers;
  const uint32_t first_item = blockIdx.x % kSharers * blockDim.x;
  const uint32_t n_chunks = chunk_count(args.n_cols);
  const uint32_t n_items = n_chunks * (kChunk / kItemCols);
  const auto item_of = [&](int k) { return first_item + threadIdx.x + k * blockDim.x; };
  if constexpr (kIsShared) say_that_block_runs();

  // The norm's weights are there before x is.
  constexpr bool kWeightsFirst = kKind == InputKind::rms_norm && kItems <= 2;
  float norm_weights[kWeightsFirst ? kItems : 1][kItemCols] = {};
  if constexpr (kWeightsFirst) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (item_of(k) < n_items) load_item(args.second, args.n_cols, item_of(k), norm_weights[k]);
    }
  }
  // Where the row goes is found meanwhile: the compiler would do it at the end.
  InputRow to = input_row(args.prepared, row);
  asm volatile("" : "+l"(to.group), "+r"(to.chunk_stride), "+r"(to.number));
  wait_for_earlier();
  let_next_start();

  // All loads are on their way before one is used.
  float v[kItems][kItemCols] = {};
  constexpr bool kGated = kKind == InputKind::gated;
  float ups[kGated ? kItems : 1][kItemCols] = {};
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    if (item_of(k) >= n_items) continue;
    load_item(args.x + size_t{row} * args.n_cols, args.n_cols, item_of(k), v[k]);
    if constexpr (kGated)
      load_item(args.second + size_t{row} * args.n_cols, args.n_cols, item_of(k), ups[k]);
  }
  if constexpr (kGated) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i)
        v[k][i] = gated(v[k][i], ups[k][i]);
    }
  }

  // A norm's largest value is found together with its sum, from products that are not yet divided;
  // only where that leaves a doubt of its exponent, it is looked for again.
  uint32_t top = 0;
  bool knows_top = false;
  if constexpr (kKind == InputKind::rms_norm) {
    Totals own{0.0F, 0};
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        own.sum = fmaf(v[k][i], v[k][i], own.sum);
        if constexpr (kWeightsFirst)
          own.largest = max(own.largest, magnitude(v[k][i] * norm_weights[k][i]));
      }
    }
    own = totals_of_block(own, totals);
    const float mean = own.sum / static_cast<float>(args.n_cols);
    const float inverse = 1.0F / sqrtf(mean + args.epsilon);
    if constexpr (kWeightsFirst) {
      const float product = __uint_as_float(own.largest);
      const float scaled = product * inverse;
      knows_top = has_sure_exponent(product) && has_sure_exponent(scaled);
      top = magnitude(scaled);
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      float weights[kItemCols] = {};
      if constexpr (!kWeightsFirst) {
        if (item_of(k) < n_items) load_item(args.second, args.n_cols, item_of(k), weights);
      }
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        if (item_of(k) * kItemCols + i >= args.n_cols) continue;  // stays zero
        v[k][i] = v[k][i] * inverse *
                  (kWeightsFirst ? norm_weights[kWeightsFirst ? k : 0][i] : weights[i]);
      }
    }
  }

  if (args.values != nullptr) {
    float* const values = args.values + size_t{row} * args.n_cols;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i) {
        const uint32_t col = item_of(k) * kItemCols + i;
        if (col < args.n_cols) values[col] = v[k][i];
      }
    }
  }
  if (args.prepared.values == nullptr) return;

  // By bits, so that a NaN is larger than all numbers.
  if (!knows_top) {
    top = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kItemCols; ++i)
        top = max(top, magnitude(v[k][i]));
    }
    if constexpr (kIsShared) {
      top = largest_of_sharers<kSharers>(top, largest);
    } else {
      top = largest_in_block(top, largest);
    }
  }
  // The largest value comes to lie in [2^14, 2^15). What is not finite stays so.
  const int exponent =
      top == 0 || top >= 0x7F800000U ? 0 : min(14 - (static_cast<int>(top >> 23) - 127), 126);
  const float scale = __int_as_float((exponent + 127) << 23);
  if (first_item + threadIdx.x == 0)
    args.prepared.scales[row] = __int_as_float((127 - exponent) << 23);

#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const uint32_t item = item_of(k);
    if (item >= n_items) continue;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(v[k][2 * i] * scale, v[k][2 * i + 1] * scale);
      words[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    put_piece(to, item * kItemCols, make_uint4(words[0], words[1], words[2], words[3]));
  }
}

template <InputKind kKind, int kItems, int kThreads, int kMinBlocks = 1>
void start(const InputArgs& args, cudaStream_t stream) {
  launch(
      "linear_input", input_kernel<kKind, kItems, kThreads, kMinBlocks, 1>,
      {.grid = {args.rows}, .threads = kThreads}, stream, args);
}

// Blocks that share a row: as many as have a multiprocessor each. Where not even two have, or a
// block would be too large, eight: small ones find room sooner.
uint32_t sharers_of(uint32_t rows, uint32_t n_items, uint32_t n_multiprocessors) {
  for (const uint32_t n : {8U, 4U, 2U}) {
    if (rows * n <= n_multiprocessors && n_items <= n * kMostOfShare) return n;
  }
  return 8;
}

template <InputKind kKind, uint32_t kSharers>
void start_shared(uint32_t n_items, const InputArgs& args, cudaStream_t stream) {
  const uint32_t n_warps = (n_items + 32 * kSharers - 1) / (32 * kSharers);
  launch(
      "linear_input", input_kernel<kKind, 1, kMostOfShare, 1, kSharers>,
      {.grid = {args.rows * kSharers}, .threads = 32 * n_warps, .cluster_blocks = kSharers}, stream,
      args);
}

// A block for each row, of threads few enough that it finds room beside a linear operator's; from
// some length on several, where the GPU lets them talk. The order in which a norm adds up is that
// of the threads: their number follows from n_cols alone.
template <InputKind kKind>
void launch_kind(const InputArgs& args, cudaStream_t stream) {
  const uint32_t n_items = chunk_count(args.n_cols) * (kChunk / kItemCols);
  if constexpr (kKind != InputKind::rms_norm) {
    // The silu keeps one multiprocessor busy for longer than blocks take to talk.
    constexpr uint32_t kMostOfOneBlock = kKind == InputKind::gated ? 512 : 1024;
    if (n_items > kMostOfOneBlock && args.prepared.values != nullptr && can_start_clusters()) {
      switch (sharers_of(args.rows, n_items, args.n_multiprocessors)) {
        case 2:
          return start_shared<kKind, 2>(n_items, args, stream);
        case 4:
          return start_shared<kKind, 4>(n_items, args, stream);
        default:
          return start_shared<kKind, 8>(n_items, args, stream);
      }
    }
  }
  if (n_items <= 256) {
    start<kKind, 1, 256>(args, stream);
  } else if (n_items <= 512) {
    start<kKind, 1, 512, 3>(args, stream);
  } else if (n_items <= 1024) {
    start<kKind, 2, 512, 2>(args, stream);
  } else if (n_items <= 2048) {
    start<kKind, 2, 1024>(args, stream);
  } else if (n_items <= 4096) {
    start<kKind, 4, 1024>(args, stream);
  } else {
    start<kKind, 8, 1024>(args, stream);
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
