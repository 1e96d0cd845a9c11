// 16 lanes in two registers. Include only in the translation unit built for AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nightsweep::cpu {
namespace {

#define NIGHTSWEEP_SIMD [[gnu::always_inline]] static inline

struct Avx2 {
  static constexpr uint32_t kRoundedRows = 4;
  static constexpr uint32_t kFloatRows = 4;
  static constexpr uint32_t kQueryRows = 4;
  // Whether dot_7bit takes bytes of 8 bits as well.
  static constexpr bool kHas8BitDots = false;

  struct F {
    __m256 lo, hi;
  };
  struct I {
    __m256i lo, hi;
  };

  NIGHTSWEEP_SIMD F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  NIGHTSWEEP_SIMD F splat(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  NIGHTSWEEP_SIMD F load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
  NIGHTSWEEP_SIMD void store(float* at, F a) {
    _mm256_storeu_ps(at, a.lo);
    _mm256_storeu_ps(at + 8, a.hi);
  }
  NIGHTSWEEP_SIMD F load_half(const void* at) {
    const auto* halves = static_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  NIGHTSWEEP_SIMD void store_half(void* at, F a) {
    auto* halves = static_cast<__m128i*>(at);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
  }
  NIGHTSWEEP_SIMD F load_bfloat(const void* at) {
    const auto* bits = static_cast<const __m128i*>(at);
    const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(bits));
    const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(bits + 1));
    return {
        _mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
        _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  }

  NIGHTSWEEP_SIMD F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  NIGHTSWEEP_SIMD F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  NIGHTSWEEP_SIMD F select_less(F x, F y, F a, F b) {
    return {
        _mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
        _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
  }
  NIGHTSWEEP_SIMD F first_lanes(uint32_t n, F a, F b) {
    const __m256i count = _mm256_set1_epi32(static_cast<int32_t>(n));
    const __m256i lo = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i hi = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    return {
        _mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lo))),
        _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, hi)))};
  }

  NIGHTSWEEP_SIMD I izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  NIGHTSWEEP_SIMD I isplat(int32_t value) {
    return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
  }
  NIGHTSWEEP_SIMD I iload(const void* at) {
    const auto* words = static_cast<const __m256i*>(at);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
  NIGHTSWEEP_SIMD I iload_u8(const void* at) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(at));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  NIGHTSWEEP_SIMD I iload_s8(const void* at) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(at));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  NIGHTSWEEP_SIMD void istore_s8(void* at, I a) {
    const __m256i low_bytes = _mm256_set1_epi32(0xFF);
    const __m256i words =
        _mm256_packus_epi32(_mm256_and_si256(a.lo, low_bytes), _mm256_and_si256(a.hi, low_bytes));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
    _mm_storeu_si128(
        static_cast<__m128i*>(at),
        _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }
  NIGHTSWEEP_SIMD void istore(void* at, I a) {
    auto* words = static_cast<__m256i*>(at);
    _mm256_storeu_si256(words, a.lo);
    _mm256_storeu_si256(words + 1, a.hi);
  }
  NIGHTSWEEP_SIMD I iadd(I a, I b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  NIGHTSWEEP_SIMD I isub(I a, I b) {
    return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
  }
  NIGHTSWEEP_SIMD I imax(I a, I b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  NIGHTSWEEP_SIMD I iand(I a, I b) {
    return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
  }
  NIGHTSWEEP_SIMD I ior(I a, I b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  NIGHTSWEEP_SIMD I ixor(I a, I b) {
    return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
  }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_left(I a) {
    return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
  }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_right(I a) {
    return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
  }
  NIGHTSWEEP_SIMD I rotate_left_by(I a, I counts) {
    const __m256i rest_lo = _mm256_sub_epi32(_mm256_set1_epi32(32), counts.lo);
    const __m256i rest_hi = _mm256_sub_epi32(_mm256_set1_epi32(32), counts.hi);
    return {
        _mm256_or_si256(_mm256_sllv_epi32(a.lo, counts.lo), _mm256_srlv_epi32(a.lo, rest_lo)),
        _mm256_or_si256(_mm256_sllv_epi32(a.hi, counts.hi), _mm256_srlv_epi32(a.hi, rest_hi))};
  }
  NIGHTSWEEP_SIMD F to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
  NIGHTSWEEP_SIMD I bits_of(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
  NIGHTSWEEP_SIMD F from_bits(I a) {
    return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
  }

  // Two products of a 7-bit and a signed 8-bit value fit in 16 bits (2 * 127 * 127 < 2^15).
  NIGHTSWEEP_SIMD I dot_7bit(I sum, I w, int32_t x) {
    const __m256i xs = _mm256_set1_epi32(x);
    const __m256i ones = _mm256_set1_epi16(1);
    return {
        _mm256_add_epi32(sum.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, xs), ones)),
        _mm256_add_epi32(sum.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, xs), ones))};
  }
  // With 8 bits they do not: the low seven bits and the high bit go separately.
  NIGHTSWEEP_SIMD I dot_8bit(I sum, I w, int32_t x) {
    const __m256i xs = _mm256_set1_epi32(x);
    return {dot_8bit_half(sum.lo, w.lo, xs), dot_8bit_half(sum.hi, w.hi, xs)};
  }

  NIGHTSWEEP_SIMD void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0);
  }

 private:
  NIGHTSWEEP_SIMD __m256i dot_8bit_half(__m256i sum, __m256i w, __m256i xs) {
    const __m256i low = _mm256_and_si256(w, _mm256_set1_epi8(0x7F));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 7), _mm256_set1_epi8(1));
    const __m256i low_dots = _mm256_madd_epi16(_mm256_maddubs_epi16(low, xs), _mm256_set1_epi16(1));
    const __m256i high_dots =
        _mm256_madd_epi16(_mm256_maddubs_epi16(high, xs), _mm256_set1_epi16(128));
    return _mm256_add_epi32(sum, _mm256_add_epi32(low_dots, high_dots));
  }
};

}  // namespace
}  // namespace nightsweep::cpu
