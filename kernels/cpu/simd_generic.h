// 16 lanes in plain C++, for any processor: slower, with the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/quant.h"

namespace nightsweep::cpu {
namespace {

#define NIGHTSWEEP_SIMD [[gnu::always_inline]] static inline

struct Generic {
  static constexpr uint32_t kRoundedRows = 4;
  static constexpr uint32_t kFloatRows = 4;
  static constexpr uint32_t kQueryRows = 4;
  // Whether dot_7bit takes bytes of 8 bits as well.
  static constexpr bool kHas8BitDots = false;

  struct F {
    float lane[16];
  };
  struct I {
    uint32_t lane[16];
  };

  NIGHTSWEEP_SIMD F zero() { return F{}; }
  NIGHTSWEEP_SIMD F splat(float value) {
    return make([=](uint32_t) { return value; });
  }
  NIGHTSWEEP_SIMD F load(const float* at) {
    return make([=](uint32_t l) { return at[l]; });
  }
  NIGHTSWEEP_SIMD void store(float* at, const F& a) {
    for (uint32_t l = 0; l < 16; ++l)
      at[l] = a.lane[l];
  }
  NIGHTSWEEP_SIMD F load_half(const void* at) {
    return make([=](uint32_t l) { return half_to_float(read_u16(at, l)); });
  }
  NIGHTSWEEP_SIMD void store_half(void* at, const F& a) {
    for (uint32_t l = 0; l < 16; ++l) {
      const uint16_t half = float_to_half(a.lane[l]);
      std::memcpy(static_cast<std::byte*>(at) + 2 * l, &half, sizeof half);
    }
  }
  NIGHTSWEEP_SIMD F load_bfloat(const void* at) {
    return make([=](uint32_t l) {
      return std::bit_cast<float>(static_cast<uint32_t>(read_u16(at, l)) << 16);
    });
  }

  NIGHTSWEEP_SIMD F add(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] + b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F sub(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] - b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F mul(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] * b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F div(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] / b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F fma(const F& a, const F& b, const F& c) {
    return make([&](uint32_t l) { return fused(a.lane[l], b.lane[l], c.lane[l]); });
  }
  NIGHTSWEEP_SIMD F max(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F min(const F& a, const F& b) {
    return make([&](uint32_t l) { return a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F select_less(const F& x, const F& y, const F& a, const F& b) {
    return make([&](uint32_t l) { return x.lane[l] < y.lane[l] ? a.lane[l] : b.lane[l]; });
  }
  NIGHTSWEEP_SIMD F first_lanes(uint32_t n, const F& a, const F& b) {
    return make([&](uint32_t l) { return l < n ? a.lane[l] : b.lane[l]; });
  }

  NIGHTSWEEP_SIMD I izero() { return I{}; }
  NIGHTSWEEP_SIMD I isplat(int32_t value) {
    return imake([=](uint32_t) { return static_cast<uint32_t>(value); });
  }
  NIGHTSWEEP_SIMD I iload(const void* at) {
    I result{};
    std::memcpy(&result, at, sizeof result);
    return result;
  }
  NIGHTSWEEP_SIMD I iload_u8(const void* at) {
    return imake([=](uint32_t l) { return uint32_t{static_cast<const uint8_t*>(at)[l]}; });
  }
  NIGHTSWEEP_SIMD I iload_s8(const void* at) {
    return imake([=](uint32_t l) {
      return static_cast<uint32_t>(int32_t{static_cast<const int8_t*>(at)[l]});
    });
  }
  NIGHTSWEEP_SIMD void istore_s8(void* at, const I& a) {
    for (uint32_t l = 0; l < 16; ++l) {
      static_cast<uint8_t*>(at)[l] = static_cast<uint8_t>(a.lane[l]);
    }
  }
  NIGHTSWEEP_SIMD void istore(void* at, const I& a) { std::memcpy(at, &a, sizeof a); }
  NIGHTSWEEP_SIMD I iadd(const I& a, const I& b) {
    return imake([&](uint32_t l) { return a.lane[l] + b.lane[l]; });
  }
  NIGHTSWEEP_SIMD I isub(const I& a, const I& b) {
    return imake([&](uint32_t l) { return a.lane[l] - b.lane[l]; });
  }
  NIGHTSWEEP_SIMD I imax(const I& a, const I& b) {
    return imake([&](uint32_t l) {
      return static_cast<int32_t>(a.lane[l]) > static_cast<int32_t>(b.lane[l]) ? a.lane[l]
                                                                               : b.lane[l];
    });
  }
  NIGHTSWEEP_SIMD I iand(const I& a, const I& b) {
    return imake([&](uint32_t l) { return a.lane[l] & b.lane[l]; });
  }
  NIGHTSWEEP_SIMD I ior(const I& a, const I& b) {
    return imake([&](uint32_t l) { return a.lane[l] | b.lane[l]; });
  }
  NIGHTSWEEP_SIMD I ixor(const I& a, const I& b) {
    return imake([&](uint32_t l) { return a.lane[l] ^ b.lane[l]; });
  }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_left(const I& a) {
    return imake([&](uint32_t l) { return a.lane[l] << kBits; });
  }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_right(const I& a) {
    return imake([&](uint32_t l) { return a.lane[l] >> kBits; });
  }
  NIGHTSWEEP_SIMD I rotate_left_by(const I& a, const I& counts) {
    return imake([&](uint32_t l) {
      return a.lane[l] << counts.lane[l] | a.lane[l] >> ((32 - counts.lane[l]) & 31);
    });
  }
  NIGHTSWEEP_SIMD F to_float(const I& a) {
    return make([&](uint32_t l) { return static_cast<float>(static_cast<int32_t>(a.lane[l])); });
  }
  NIGHTSWEEP_SIMD I bits_of(const F& a) { return std::bit_cast<I>(a); }
  NIGHTSWEEP_SIMD F from_bits(const I& a) { return std::bit_cast<F>(a); }

  NIGHTSWEEP_SIMD I dot_7bit(const I& sum, const I& w, int32_t x) {
    return imake([&](uint32_t l) {
      int32_t dot = 0;
      for (uint32_t b = 0; b < 4; ++b) {
        const auto weight = static_cast<int32_t>(w.lane[l] >> (8 * b) & 0xFF);
        dot += weight * static_cast<int8_t>(static_cast<uint32_t>(x) >> (8 * b));
      }
      return sum.lane[l] + static_cast<uint32_t>(dot);
    });
  }
  NIGHTSWEEP_SIMD I dot_8bit(const I& sum, const I& w, int32_t x) { return dot_7bit(sum, w, x); }

  NIGHTSWEEP_SIMD void prefetch(const void*) {}

 private:
  template <typename LaneFunction>
  NIGHTSWEEP_SIMD F make(LaneFunction value) {
    F result{};
    for (uint32_t l = 0; l < 16; ++l)
      result.lane[l] = value(l);
    return result;
  }
  template <typename LaneFunction>
  NIGHTSWEEP_SIMD I imake(LaneFunction value) {
    I result{};
    for (uint32_t l = 0; l < 16; ++l)
      result.lane[l] = value(l);
    return result;
  }
  NIGHTSWEEP_SIMD uint16_t read_u16(const void* at, uint32_t index) {
    uint16_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(at) + 2 * index, sizeof value);
    return value;
  }

  // a * b + c rounded once. Without the instruction: the product is exact in double; the sum is
  // rounded to odd, after which rounding to float is right (Boldo and Melquiond, "Emulation of FMA
  // and correctly rounded sums", 2008).
  NIGHTSWEEP_SIMD float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double addend = c;
    const double sum = product + addend;
    const double part = sum - product;
    const double error = (product - (sum - part)) + (addend - part);
    auto bits = std::bit_cast<uint64_t>(sum);
    const bool is_even = (bits & 1) == 0;
    // Towards the error: away from zero when both have one sign.
    if (is_even && (error < 0 || error > 0)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    return static_cast<float>(std::bit_cast<double>(bits));
#endif
  }
};

}  // namespace
}  // namespace nightsweep::cpu
