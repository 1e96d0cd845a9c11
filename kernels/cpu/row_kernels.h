// Operators on single rows: rounding and laying out inputs, norm, rotation, activation.
#pragma once

#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/vector_math.h"

namespace nightsweep::cpu {
namespace {

// n < 16 values, the rest zero.
template <class S>
[[gnu::always_inline]] inline typename S::F load_some(const float* at, uint32_t n) {
  float lanes[kLanes] = {};
  for (uint32_t l = 0; l < n; ++l)
    lanes[l] = at[l];
  return S::load(lanes);
}

template <class S>
[[gnu::always_inline]] inline void store_some(float* at, uint32_t n, typename S::F a) {
  float lanes[kLanes];
  S::store(lanes, a);
  for (uint32_t l = 0; l < n; ++l)
    at[l] = lanes[l];
}

[[gnu::always_inline]] inline void write_float(std::byte* at, float value) {
  std::memcpy(at, &value, sizeof value);
}
[[gnu::always_inline]] inline void write_int(std::byte* at, int32_t value) {
  std::memcpy(at, &value, sizeof value);
}

// Largest |x| as bits, so that infinity and NaN come out on top.
template <class S>
[[gnu::always_inline]] inline uint32_t largest_magnitude(typename S::F a, typename S::F b) {
  const auto no_sign = S::isplat(0x7FFFFFFF);
  const auto largest = S::imax(S::iand(S::bits_of(a), no_sign), S::iand(S::bits_of(b), no_sign));
  uint32_t lanes[kLanes];
  S::store(reinterpret_cast<float*>(lanes), S::from_bits(largest));
  uint32_t result = 0;
  for (const uint32_t lane : lanes)
    result = lane > result ? lane : result;
  return result;
}

// The nearest integers (ties to even) of values within +-127 that lie in the low byte of each lane.
template <class S>
[[gnu::always_inline]] inline typename S::I round_to_bytes(typename S::F scaled) {
  const auto magic = S::splat(12582912.0F);
  return S::isub(S::bits_of(S::add(scaled, magic)), S::isplat(0x4B400000));
}

inline constexpr uint32_t kInfinityBits = 0x7F800000;

// q = nearest(x * 127 / max|x|), scale = max|x| / 127; NaN as scale when a value is not finite.
template <class S>
void round_tile(const float* x, uint32_t n_rows, uint32_t n_cols, std::byte* tile) {
  for (uint32_t column = 0; column < n_cols; column += kSubBlock) {
    for (uint32_t r = 0; r < n_rows; ++r) {
      const float* const values = x + size_t{r} * n_cols + column;
      const auto a = S::load(values);
      const auto b = S::load(values + kLanes);
      const uint32_t largest_bits = largest_magnitude<S>(a, b);
      float largest = 0.0F;
      std::memcpy(&largest, &largest_bits, sizeof largest);
      const bool is_finite = largest_bits < kInfinityBits;
      const float inverse = 127.0F / largest;
      int8_t q[kSubBlock] = {};
      // A subnormal maximum may have no inverse; such a block is zero.
      if (is_finite && inverse < __builtin_inff()) {
        S::istore_s8(q, round_to_bytes<S>(S::mul(a, S::splat(inverse))));
        S::istore_s8(q + kLanes, round_to_bytes<S>(S::mul(b, S::splat(inverse))));
      }
      int32_t sum_low = 0;
      int32_t sum_high = 0;
      for (uint32_t i = 0; i < kLanes; ++i) {
        sum_low += q[i];
        sum_high += q[kLanes + i];
      }
      const int32_t sum = sum_low + sum_high;
      std::memcpy(tile + size_t{32} * r, q, sizeof q);
      std::byte* const side = tile + size_t{4} * r;
      const auto start = [&](StartSlot slot) { return side + rounded_start_offset(n_rows, slot); };
      write_float(
          side + rounded_scale_offset(n_rows), is_finite ? largest / 127.0F : __builtin_nanf(""));
      write_float(side + rounded_sum_offset(n_rows), static_cast<float>(sum));
      write_int(start(StartSlot::minus_8), -8 * sum);
      write_int(start(StartSlot::minus_16), -16 * sum);
      write_int(start(StartSlot::minus_128), -128 * sum);
      write_int(start(StartSlot::minus_32_low), -32 * sum_low);
      write_int(start(StartSlot::minus_32_high), -32 * sum_high);
    }
    tile += size_t{kRoundedBytesPerRow} * n_rows;
  }
}

template <class S>
void float_tile(const float* x, uint32_t n_rows, uint32_t n_cols, std::byte* tile) {
  for (uint32_t r = 0; r < n_rows; ++r) {
    std::byte* to = tile + sizeof(float) * r;
    for (uint32_t column = 0; column < n_cols; ++column) {
      write_float(to, x[size_t{r} * n_cols + column]);
      to += sizeof(float) * n_rows;
    }
  }
}

// Sum of squares: lane l adds columns l, 16 + l, ... in order; then the lanes are joined.
template <class S>
void rms_norm(const float* x, const float* weight, float epsilon, uint32_t dim, float* out) {
  const uint32_t whole = dim / kLanes * kLanes;
  const uint32_t rest = dim - whole;
  auto squares = S::zero();
  for (uint32_t i = 0; i < whole; i += kLanes) {
    const auto value = S::load(x + i);
    squares = S::fma(value, value, squares);
  }
  if (rest != 0) {
    const auto value = load_some<S>(x + whole, rest);
    squares = S::fma(value, value, squares);
  }
  const float mean = sum_of_lanes<S>(squares) / static_cast<float>(dim);
  const auto scale = S::splat(1.0F / __builtin_sqrtf(mean + epsilon));
  for (uint32_t i = 0; i < whole; i += kLanes) {
    S::store(out + i, S::mul(S::mul(S::load(x + i), scale), S::load(weight + i)));
  }
  if (rest != 0) {
    const auto scaled = S::mul(load_some<S>(x + whole, rest), scale);
    store_some<S>(out + whole, rest, S::mul(scaled, load_some<S>(weight + whole, rest)));
  }
}

// gate / (1 + exp(-gate)) * up
template <class S>
[[gnu::always_inline]] inline typename S::F swiglu_lanes(typename S::F gate, typename S::F up) {
  const auto one = S::splat(1.0F);
  const auto denominator = S::add(one, vector_exp<S>(S::sub(S::zero(), gate)));
  return S::mul(S::div(gate, denominator), up);
}

template <class S>
void swiglu(const float* gate, const float* up, size_t count, float* out) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    S::store(out + i, swiglu_lanes<S>(S::load(gate + i), S::load(up + i)));
  }
  const auto rest = static_cast<uint32_t>(count - whole);
  if (rest != 0) {
    const auto result =
        swiglu_lanes<S>(load_some<S>(gate + whole, rest), load_some<S>(up + whole, rest));
    store_some<S>(out + whole, rest, result);
  }
}

template <class S>
void rope(float* x, const float* cosines, const float* sines, uint32_t n_pairs, bool half_split) {
  const uint32_t step = half_split ? 1 : 2;
  const uint32_t partner = half_split ? n_pairs : 1;
  for (uint32_t i = 0; i < n_pairs; ++i) {
    float* const pair = x + size_t{step} * i;
    const float a = pair[0];
    const float b = pair[partner];
    pair[0] = a * cosines[i] - b * sines[i];
    pair[partner] = a * sines[i] + b * cosines[i];
  }
}

}  // namespace
}  // namespace nightsweep::cpu
