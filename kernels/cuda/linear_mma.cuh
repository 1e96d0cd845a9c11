// What the small and the large tiles of the linear operator share.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_format.cuh"
#include "kernels/cuda/linear_kernels.h"

namespace nightsweep::cuda {

// sums += a (16 outputs x 16 columns) * b (16 columns x 8 rows). Of lane 4 g + t: outputs g and g +
// 8 of rows 2t and 2t + 1: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void
multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Before the input is read: the kernels before are over; or, of a kernel that runs beside the one
// before, what that one waited for is over (and no longer in this multiprocessor's cache). Weights
// may be read earlier.
__device__ __forceinline__ void wait_for_input(const LinearArgs& args) {
  if (args.is_beside) {
    __threadfence();
  } else {
    wait_for_earlier();
  }
  if (args.lets_next) let_next_start();
}
// Before the end: whoever waits for a kernel that ran beside another waits for both.
__device__ __forceinline__ void wait_for_neighbour(const LinearArgs& args) {
  if (args.is_beside) wait_for_earlier();
}

__device__ __forceinline__ const PartArgs& part_of_tile(const LinearArgs& args, uint32_t tile) {
  uint32_t i = 0;
  while (i + 1 < args.n_parts && tile >= args.parts[i + 1].first_tile)
    ++i;
  return args.parts[i];
}

// 2^-e of a row of a panel.
__device__ __forceinline__ float undo_exponent(const uint8_t* panel, uint32_t row) {
  const int exponent = reinterpret_cast<const int16_t*>(panel)[row];
  return __int_as_float((127 - exponent) << 23);
}

// Where the sums of a panel go; of lane 4 g + t outputs g and g + 8.
struct PanelOutput {
  float* at[2];  // row 0
  float scale[2];
  float bias[2];
  bool is_there[2];
};

template <QuantType kType>
__device__ __forceinline__ PanelOutput
panel_output(const PartArgs& part, const uint8_t* panel, uint32_t first_output, uint32_t lane) {
  PanelOutput to;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t in_panel = lane / 4 + 8 * i;
    const uint32_t output = first_output + in_panel;
    to.is_there[i] = output < part.n_rows;
    to.at[i] = part.out + part.out_column + output;
    to.scale[i] = kType == QuantType::f16 ? 1.0F : undo_exponent(panel, in_panel);
    to.bias[i] = part.bias != nullptr && to.is_there[i] ? part.bias[output] : 0.0F;
  }
  return to;
}

// Scales the finished sums of 16 outputs by 8 kCount rows and puts them in their places. All that
// is read is on its way before anything is written: a load behind a store that may be to its place
// waits for the one before it, 32 times for 64 rows.
template <int kCount>
__device__ __forceinline__ void store_fragments(
    const LinearArgs& args,
    const PartArgs& part,
    const PanelOutput& to,
    uint32_t first_row,
    uint32_t lane,
    const float (&sums)[kCount][4]) {
  float row_scales[kCount][2];
  float before[kCount][4];
#pragma unroll
  for (uint32_t n = 0; n < kCount; ++n) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t row = first_row + 8 * n + 2 * (lane % 4) + j;
      const bool is_row = row < args.rows;
      row_scales[n][j] = is_row ? args.input_scale[row] : 0.0F;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        before[n][2 * i + j] = part.accumulate && is_row && to.is_there[i]
                                   ? to.at[i][size_t{row} * part.out_stride]
                                   : 0.0F;
      }
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kCount; ++n) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t row = first_row + 8 * n + 2 * (lane % 4) + j;
      if (row >= args.rows) continue;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        if (!to.is_there[i]) continue;
        float value = sums[n][2 * i + j] * to.scale[i] * row_scales[n][j];
        if (part.bias != nullptr) value += to.bias[i];
        to.at[i][size_t{row} * part.out_stride] =
            part.accumulate ? before[n][2 * i + j] + value : value;
      }
    }
  }
}

}  // namespace nightsweep::cuda
