// exp, and sums and maxima over lanes, with the same bits on every instruction set.
#pragma once

#include <cstdint>

namespace nightsweep::cpu {
namespace {

// exp(x), within 2 units in the last place; 0 below -87.3 (no subnormals), infinity above 88.7,
// NaN for NaN. x = n ln 2 + r, exp(r) by a polynomial of degree 6 on |r| <= ln 2 / 2.
template <class S>
[[gnu::always_inline]] inline typename S::F vector_exp(typename S::F x) {
  const auto lowest = S::splat(-87.33654F);
  const auto highest = S::splat(88.72283F);
  // The second operand wins when one is NaN, so NaN passes.
  const auto clamped = S::max(lowest, S::min(highest, x));
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const auto magic = S::splat(12582912.0F);
  const auto shifted = S::fma(clamped, S::splat(1.44269504F), magic);
  const auto n = S::sub(shifted, magic);
  auto r = S::fma(n, S::splat(-0.693359375F), clamped);
  r = S::fma(n, S::splat(2.12194440e-4F), r);
  auto p = S::splat(1.9875691500e-4F);
  p = S::fma(p, r, S::splat(1.3981999507e-3F));
  p = S::fma(p, r, S::splat(8.3334519073e-3F));
  p = S::fma(p, r, S::splat(4.1665795894e-2F));
  p = S::fma(p, r, S::splat(1.6666665459e-1F));
  p = S::fma(p, r, S::splat(5.0000001201e-1F));
  p = S::fma(p, S::mul(r, r), S::add(r, S::splat(1.0F)));
  // 2^n in two halves, because n may be 128.
  const auto exponent = S::isub(S::bits_of(shifted), S::isplat(0x4B400000));
  const auto bias = S::isplat(127);
  const auto half =
      S::isub(S::template shift_right<1>(S::iadd(exponent, S::isplat(256))), S::isplat(128));
  const auto rest = S::isub(exponent, half);
  p = S::mul(p, S::from_bits(S::template shift_left<23>(S::iadd(half, bias))));
  p = S::mul(p, S::from_bits(S::template shift_left<23>(S::iadd(rest, bias))));
  p = S::select_less(x, lowest, S::zero(), p);
  return S::select_less(highest, x, S::splat(__builtin_inff()), p);
}

// Lanes are joined in halves: 16, 8, 4, 2, 1.
template <class S>
[[gnu::always_inline]] inline float sum_of_lanes(typename S::F a) {
  float lanes[16];
  S::store(lanes, a);
  for (uint32_t width = 8; width >= 1; width /= 2) {
    for (uint32_t l = 0; l < width; ++l)
      lanes[l] = lanes[l] + lanes[l + width];
  }
  return lanes[0];
}

template <class S>
[[gnu::always_inline]] inline float max_of_lanes(typename S::F a) {
  float lanes[16];
  S::store(lanes, a);
  for (uint32_t width = 8; width >= 1; width /= 2) {
    for (uint32_t l = 0; l < width; ++l) {
      lanes[l] = lanes[l] > lanes[l + width] ? lanes[l] : lanes[l + width];
    }
  }
  return lanes[0];
}

}  // namespace
}  // namespace nightsweep::cpu
