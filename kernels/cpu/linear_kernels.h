// out[r][o] = x[r] . w[o]: one packed panel (16 outputs, one a lane) with tiles of input rows.
//
// Order of summation, rounded input: in each sub-block of 32 columns an exact integer dot product
// `dot`; then   part = scale * dot [+ min * sum],   sum = fma(part, input scale, sum).
// Order of summation, float32 input: in each 32 columns a chain of fma from zero, in order, gives
// `part`; then sum = sum + part.
#pragma once

#include <cstring>

#include "kernels/cpu/formats.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/layout.h"

namespace nightsweep::cpu {
namespace {

template <class S>
[[gnu::always_inline]] inline void
finish_row(const PanelTask& task, uint32_t row, typename S::F sum) {
  float* const out = task.out + row * task.out_stride;
  if (task.n_outputs == kLanes) {
    if (task.bias != nullptr) sum = S::add(sum, S::load(task.bias));
    if (task.accumulate) sum = S::add(S::load(out), sum);
    S::store(out, sum);
    return;
  }
  float lanes[kLanes];
  S::store(lanes, sum);
  for (uint32_t lane = 0; lane < task.n_outputs; ++lane) {
    float value = lanes[lane];
    if (task.bias != nullptr) value = value + task.bias[lane];
    out[lane] = task.accumulate ? out[lane] + value : value;
  }
}

template <typename T>
[[gnu::always_inline]] inline T read_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <uint32_t kNumber>
struct Part {
  static constexpr uint32_t kValue = kNumber;
};

// body(Part<0>), body(Part<1>), ...
template <uint32_t kParts, uint32_t kFrom = 0, class Body>
[[gnu::always_inline]] inline void for_each_part(const Body& body) {
  if constexpr (kFrom < kParts) {
    body(Part<kFrom>{});
    for_each_part<kParts, kFrom + 1>(body);
  }
}

// Where the rounded input of one row stands in the tile's current sub-block.
struct RoundedRow {
  const std::byte* q;
  const std::byte* scale;
  const std::byte* sum;
  const std::byte* start;       // of the slot that the format needs
  const std::byte* start_high;  // Q6_K: of the second half
};

template <class S, class Format>
[[gnu::always_inline]] inline typename S::F
add_sub_block(const SubBlock<S>& w, const RoundedRow& row, typename S::F sum) {
  const auto dot = [&](uint32_t first, uint32_t last, typename S::I total) {
    for (uint32_t i = first; i < last; ++i) {
      const auto x = read_at<int32_t>(row.q + 4 * i);
      if constexpr (Format::kIs8Bit) {
        total = S::dot_8bit(total, w.bytes[i], x);
      } else {
        total = S::dot_7bit(total, w.bytes[i], x);
      }
    }
    return S::to_float(total);
  };
  typename S::F part{};
  if constexpr (Format::kTwoScales) {
    const auto low = dot(0, 4, S::isplat(read_at<int32_t>(row.start)));
    const auto high = dot(4, 8, S::isplat(read_at<int32_t>(row.start_high)));
    part = S::fma(high, w.scales[1], S::mul(low, w.scales[0]));
  } else if constexpr (Format::kHasMin) {
    const auto input_sum = S::splat(read_at<float>(row.sum));
    part = S::fma(dot(0, 8, S::izero()), w.scales[0], S::mul(w.min, input_sum));
  } else {
    part = S::mul(dot(0, 8, S::isplat(read_at<int32_t>(row.start))), w.scales[0]);
  }
  return S::fma(part, S::splat(read_at<float>(row.scale)), sum);
}

// Rows [first, first + kRows) of a tile.
template <class S, class Format, uint32_t kRows>
void rounded_rows(const PanelTask& task, const InputTile& tile, uint32_t first) {
  constexpr size_t kSubBlockBytes = Format::kPanelBlockBytes / Format::kSubBlocks;
  constexpr size_t kGroupBytes = kSubBlockBytes * Format::kUnroll;

  const size_t step = size_t{kRoundedBytesPerRow} * tile.n_rows;
  const std::byte* const side = tile.data + size_t{4} * first;
  RoundedRow row0{
      .q = tile.data + size_t{32} * first,
      .scale = side + rounded_scale_offset(tile.n_rows),
      .sum = side + rounded_sum_offset(tile.n_rows),
      .start = side + rounded_start_offset(tile.n_rows, Format::kStart),
      .start_high = side + rounded_start_offset(tile.n_rows, StartSlot::minus_32_high)};
  typename S::F sums[kRows];
  for (uint32_t r = 0; r < kRows; ++r)
    sums[r] = S::zero();
  const std::byte* block = task.panel;
  const std::byte* ahead = task.ahead;
  const uint32_t n_blocks = task.input->n_cols / (kSubBlock * Format::kSubBlocks);
  for (uint32_t b = 0; b < n_blocks; ++b) {
    typename Format::template Scales<S> scales;
    Format::template read_scales<S>(block, scales);
    for (uint32_t j0 = 0; j0 < Format::kSubBlocks; j0 += Format::kUnroll) {
      for (size_t line = 0; line < kGroupBytes; line += 64) {
        S::prefetch(ahead + j0 * kSubBlockBytes + line);
      }
      for_each_part<Format::kUnroll>([&](auto part) __attribute__((always_inline)) {
        SubBlock<S> w{};
        Format::template decode<S, Use::dots, part.kValue>(block, j0, scales, w);
        for (uint32_t r = 0; r < kRows; ++r) {
          const RoundedRow row{
              row0.q + size_t{32} * r, row0.scale + size_t{4} * r, row0.sum + size_t{4} * r,
              row0.start + size_t{4} * r, row0.start_high + size_t{4} * r};
          sums[r] = add_sub_block<S, Format>(w, row, sums[r]);
        }
        row0 = {
            row0.q + step, row0.scale + step, row0.sum + step, row0.start + step,
            row0.start_high + step};
      });
    }
    block += Format::kPanelBlockBytes;
    ahead += Format::kPanelBlockBytes;
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    finish_row<S>(task, tile.first_row + first + r, sums[r]);
  }
}

// Sources of float32 weights: the n values (32, or fewer at the end of a row) from column 32 i on.
template <class S, class Format>
struct QuantisedSource {
  [[gnu::always_inline]] explicit QuantisedSource(const std::byte* panel) : block(panel) {}

  [[gnu::always_inline]] void next(uint32_t, typename S::F* weights) {
    if (j == 0) Format::template read_scales<S>(block, scales);
    SubBlock<S> w{};
    for_each_part<Format::kUnroll>([&](auto part) __attribute__((always_inline)) {
      if (j % Format::kUnroll == part.kValue) {
        Format::template decode<S, Use::values, part.kValue>(block, j - part.kValue, scales, w);
      }
    });
    const typename S::I low_byte = S::isplat(0xFF);
    for (uint32_t i = 0; i < 8; ++i) {
      const typename S::I bytes[4] = {
          S::iand(w.bytes[i], low_byte), S::iand(S::template shift_right<8>(w.bytes[i]), low_byte),
          S::iand(S::template shift_right<16>(w.bytes[i]), low_byte),
          S::template shift_right<24>(w.bytes[i])};
      const typename S::F scale = Format::kTwoScales && i >= 4 ? w.scales[1] : w.scales[0];
      for (uint32_t k = 0; k < 4; ++k) {
        typename S::F value = S::to_float(S::isub(bytes[k], S::isplat(Format::kOffset)));
        value = S::mul(scale, value);
        if constexpr (Format::kHasMin) value = S::add(value, w.min);
        weights[4 * i + k] = value;
      }
    }
    if (++j == Format::kSubBlocks) {
      j = 0;
      block += Format::kPanelBlockBytes;
    }
  }

  const std::byte* block;
  uint32_t j = 0;
  typename Format::template Scales<S> scales;
};

template <class S, QuantType kType>
struct FloatSource {
  [[gnu::always_inline]] explicit FloatSource(const std::byte* panel) : at(panel) {}

  [[gnu::always_inline]] void next(uint32_t n, typename S::F* weights) {
    constexpr size_t kBytes = kLanes * (kType == QuantType::f32 ? 4 : 2);
    for (uint32_t k = 0; k < n; ++k) {
      if constexpr (kType == QuantType::f32) {
        weights[k] = S::from_bits(S::iload(at));
      } else if constexpr (kType == QuantType::f16) {
        weights[k] = S::load_half(at);
      } else {
        weights[k] = S::load_bfloat(at);
      }
      at += kBytes;
    }
  }

  const std::byte* at;
};

template <class S, class Source, uint32_t kRows>
void float_rows(const PanelTask& task, const InputTile& tile, uint32_t first) {
  typename S::F sums[kRows];
  for (uint32_t r = 0; r < kRows; ++r)
    sums[r] = S::zero();
  const std::byte* x = tile.data + sizeof(float) * first;
  Source source(task.panel);
  typename S::F weights[kSubBlock];
  for (uint32_t column = 0; column < task.input->n_cols; column += kSubBlock) {
    const uint32_t left = task.input->n_cols - column;
    const uint32_t n = left < kSubBlock ? left : kSubBlock;
    source.next(n, weights);
    typename S::F parts[kRows];
    for (uint32_t r = 0; r < kRows; ++r)
      parts[r] = S::zero();
    for (uint32_t k = 0; k < n; ++k) {
      for (uint32_t r = 0; r < kRows; ++r) {
        parts[r] = S::fma(weights[k], S::splat(read_at<float>(x + 4 * r)), parts[r]);
      }
      x += sizeof(float) * tile.n_rows;
    }
    for (uint32_t r = 0; r < kRows; ++r)
      sums[r] = S::add(sums[r], parts[r]);
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    finish_row<S>(task, tile.first_row + first + r, sums[r]);
  }
}

template <class S, class Format>
struct RoundedRows {
  static constexpr uint32_t kMost = S::kRoundedRows;
  template <uint32_t kRows>
  static void run(const PanelTask& task, const InputTile& tile, uint32_t first) {
    rounded_rows<S, Format, kRows>(task, tile, first);
  }
};

template <class S, class Source>
struct FloatRows {
  static constexpr uint32_t kMost = S::kFloatRows;
  template <uint32_t kRows>
  static void run(const PanelTask& task, const InputTile& tile, uint32_t first) {
    float_rows<S, Source, kRows>(task, tile, first);
  }
};

// Works on kRows rows at a time while they last, and leaves the rest to half as many.
template <class Rows, uint32_t kRows>
uint32_t run_rows(const PanelTask& task, const InputTile& tile, uint32_t first) {
  for (; first + kRows <= tile.n_rows; first += kRows) {
    Rows::template run<kRows>(task, tile, first);
  }
  if constexpr (kRows > 1) first = run_rows<Rows, kRows / 2>(task, tile, first);
  return first;
}

template <class Rows>
void run_tiles(const PanelTask& task) {
  for (uint32_t t = 0; t < task.input->n_tiles; ++t) {
    run_rows<Rows, Rows::kMost>(task, task.input->tiles[t], 0);
  }
}

// REQUIRES: a quantised type.
template <class S>
void panel_rounded(QuantType type, const PanelTask& task) {
  switch (type) {
    case QuantType::q4_0:
      return run_tiles<RoundedRows<S, Q40>>(task);
    case QuantType::q4_1:
      return run_tiles<RoundedRows<S, Q41>>(task);
    case QuantType::q5_0:
      return run_tiles<RoundedRows<S, Q50>>(task);
    case QuantType::q5_1:
      return run_tiles<RoundedRows<S, Q51>>(task);
    case QuantType::q8_0:
      return run_tiles<RoundedRows<S, Q80>>(task);
    case QuantType::q4_k:
      return run_tiles<RoundedRows<S, Q4K>>(task);
    case QuantType::q5_k:
      return run_tiles<RoundedRows<S, Q5K>>(task);
    case QuantType::q6_k:
      return run_tiles<RoundedRows<S, Q6K>>(task);
    case QuantType::f32:
    case QuantType::f16:
    case QuantType::bf16:
      return;
  }
}

template <class S>
void panel_float(QuantType type, const PanelTask& task) {
  switch (type) {
    case QuantType::f32:
      return run_tiles<FloatRows<S, FloatSource<S, QuantType::f32>>>(task);
    case QuantType::f16:
      return run_tiles<FloatRows<S, FloatSource<S, QuantType::f16>>>(task);
    case QuantType::bf16:
      return run_tiles<FloatRows<S, FloatSource<S, QuantType::bf16>>>(task);
    case QuantType::q4_0:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q40>>>(task);
    case QuantType::q4_1:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q41>>>(task);
    case QuantType::q5_0:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q50>>>(task);
    case QuantType::q5_1:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q51>>>(task);
    case QuantType::q8_0:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q80>>>(task);
    case QuantType::q4_k:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q4K>>>(task);
    case QuantType::q5_k:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q5K>>>(task);
    case QuantType::q6_k:
      return run_tiles<FloatRows<S, QuantisedSource<S, Q6K>>>(task);
  }
}

}  // namespace
}  // namespace nightsweep::cpu
