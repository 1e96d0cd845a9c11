// Where a head's output goes: into the input of the linear operator that follows, or as float32.
//
// ROUNDING. An output is a half either way. It is a mean of values that the page holds as half, or
// that were widened to half, so it needs no scale.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/attention.h"

namespace nightsweep::cuda {

namespace {

// Two outputs. A mean is no larger than the largest half, but for the rounding of its weights. NaN
// stays NaN.
__device__ __forceinline__ uint32_t output_pair(float low, float high) {
  uint32_t pair = 0;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Of one query and head.
class HeadOutput {
 public:
  __device__ HeadOutput(const AttentionArgs& args, uint32_t row, uint32_t head)
      : head_dim_(args.head_dim), first_col_(head * args.head_dim) {
    if (args.input.values != nullptr) {
      row_ = input_row(args.input, row);
    } else {
      floats_ = args.out + (size_t{row} * args.n_heads + head) * args.head_dim;
    }
  }

  // Elements `element`, which is even, and the next one. Those past the head go nowhere.
  __device__ void put_pair(uint32_t element, uint32_t pair) const {
    if (element >= head_dim_) return;
    const bool has_both = element + 1 < head_dim_;
    if (floats_ != nullptr) {
      const float2 both = widened_pair(pair);
      floats_[element] = both.x;
      if (has_both) floats_[element + 1] = both.y;
    } else if (head_dim_ % 2 == 0) {
      *reinterpret_cast<uint32_t*>(row_.pair_at(first_col_ + element)) = pair;
    } else {
      put_half(first_col_ + element, static_cast<uint16_t>(pair));
      if (has_both) put_half(first_col_ + element + 1, static_cast<uint16_t>(pair >> 16));
    }
  }

  // Elements [first, end), which stand at `halves`, 16-byte aligned like `first`. By two threads,
  // of which this is number `part`.
  __device__ void put_elements(const __half* halves, uint32_t first, uint32_t end, uint32_t part)
      const {
    end = min(end, head_dim_);
    if (head_dim_ % 8 != 0) {
      for (uint32_t i = first + 2 * part; i < end; i += 4)
        put_pair(i, *reinterpret_cast<const uint32_t*>(halves + i - first));
      return;
    }
#pragma unroll 4
    for (uint32_t i = first + 8 * part; i < end; i += 16)
      put_eight(i, *reinterpret_cast<const uint4*>(halves + i - first));
  }

  // What a row has once, with its last head: the scale, and zeros up to the end of the last chunk.
  // By n threads, of which this is number `part`.
  __device__ void finish_row(const AttentionArgs& args, uint32_t row, uint32_t part, uint32_t n)
      const {
    if (args.input.values == nullptr) return;
    if (part == 0) args.input.scales[row] = 1.0F;
    const uint32_t n_cols = args.n_heads * args.head_dim;
    for (uint32_t col = n_cols + part; col < args.input.n_chunks * kChunk; col += n)
      put_half(col, 0);
  }

 private:
  __device__ static float2 widened_pair(uint32_t pair) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
  __device__ void put_half(uint32_t col, uint16_t half) const {
    reinterpret_cast<uint16_t*>(row_.pair_at(col / 2 * 2))[col % 2] = half;
  }
  __device__ void put_eight(uint32_t element, const uint4& words) const {
    if (floats_ == nullptr) {
      put_piece(row_, first_col_ + element, words);
      return;
    }
    const float2 pairs[4] = {
        widened_pair(words.x), widened_pair(words.y), widened_pair(words.z), widened_pair(words.w)};
    auto* const at = reinterpret_cast<float4*>(floats_ + element);
    at[0] = make_float4(pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y);
    at[1] = make_float4(pairs[2].x, pairs[2].y, pairs[3].x, pairs[3].y);
  }

  uint32_t head_dim_;
  uint32_t first_col_;
  float* floats_ = nullptr;
  InputRow row_{};
};

}  // namespace

}  // namespace nightsweep::cuda
