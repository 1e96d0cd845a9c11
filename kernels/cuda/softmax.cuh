// A running softmax over scores and values, and the merge of two: the arithmetic that every way
// through attention shares. See attention.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace nightsweep::cuda {

constexpr float kNothing = -__builtin_huge_valf();

// What a maximum is subtracted as: nothing seen yet must not make -inf - -inf.
__device__ inline float shift_of(float largest) {
  return largest == kNothing ? 0.0F : largest;
}

// old 2^(m_old - m') + add 2^(m_add - m'), given both powers.
__device__ inline float merged(float old, float old_power, float add, float add_power) {
  return fmaf(old, old_power, add * add_power);
}

// Of the two queries that a lane holds, with its share of their values in C fragments.
template <uint32_t kOutTiles>
struct Softmax {
  float largest[2];
  float sum[2];  // of this lane's tokens until finish_sums(), then the query's
  float values[kOutTiles][4];

  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      largest[i] = kNothing;
      sum[i] = 0.0F;
    }
#pragma unroll
    for (uint32_t n = 0; n < kOutTiles; ++n)
      values[n][0] = values[n][1] = values[n][2] = values[n][3] = 0.0F;
  }

  // Takes the scores of a page (C fragments of 8 tiles of 8 tokens) and returns the weights as A
  // fragments. Tokens after a query's position weigh nothing.
  __device__ void add_scores(
      float (&scores)[8][4],
      const float (&factor)[2],
      const uint32_t (&position)[2],
      uint32_t first_token,
      uint32_t (&weights)[4][4]) {
    const uint32_t lane_token = first_token + threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      float page_largest = kNothing;
#pragma unroll
      for (uint32_t n = 0; n < 8; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          float& score = scores[n][2 * i + e];
          score = lane_token + 8 * n + e <= position[i] ? score * factor[i] : kNothing;
          page_largest = fmaxf(page_largest, score);
        }
      }
      page_largest = fmaxf(page_largest, __shfl_xor_sync(0xFFFFFFFFU, page_largest, 1));
      page_largest = fmaxf(page_largest, __shfl_xor_sync(0xFFFFFFFFU, page_largest, 2));
      const float new_largest = fmaxf(largest[i], page_largest);
      const float shift = shift_of(new_largest);
      const float power = exp2_fast(largest[i] - shift);
      float page_sum = 0.0F;
#pragma unroll
      for (uint32_t n = 0; n < 8; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          float& score = scores[n][2 * i + e];
          score = exp2_fast(score - shift);
          page_sum += score;
        }
      }
      largest[i] = new_largest;
      sum[i] = fmaf(sum[i], power, page_sum);
#pragma unroll
      for (uint32_t n = 0; n < kOutTiles; ++n) {
        values[n][2 * i] *= power;
        values[n][2 * i + 1] *= power;
      }
    }
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      const float(&low)[4] = scores[2 * step];
      const float(&high)[4] = scores[2 * step + 1];
      weights[step][0] = pack_halves(low[0], low[1]);
      weights[step][1] = pack_halves(low[2], low[3]);
      weights[step][2] = pack_halves(high[0], high[1]);
      weights[step][3] = pack_halves(high[2], high[3]);
    }
  }

  // Lanes of a query add up.
  __device__ void finish_sums() {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(0xFFFFFFFFU, sum[i], 1);
      sum[i] += __shfl_xor_sync(0xFFFFFFFFU, sum[i], 2);
    }
  }

  // Adds a finished split of later positions.
  __device__ void merge(const Softmax& split) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const float new_largest = fmaxf(largest[i], split.largest[i]);
      const float shift = shift_of(new_largest);
      const float old_power = exp2_fast(largest[i] - shift);
      const float add_power = exp2_fast(split.largest[i] - shift);
      largest[i] = new_largest;
      sum[i] = merged(sum[i], old_power, split.sum[i], add_power);
#pragma unroll
      for (uint32_t n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          values[n][2 * i + e] =
              merged(values[n][2 * i + e], old_power, split.values[n][2 * i + e], add_power);
        }
      }
    }
  }
};

}  // namespace nightsweep::cuda
