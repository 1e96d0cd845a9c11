// 16 lanes in one register. Include only in the translation unit built for AVX-512 VNNI.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nightsweep::cpu {
namespace {

#define NIGHTSWEEP_SIMD [[gnu::always_inline]] static inline

struct Avx512 {
  // Rows of an input tile that are worked on together: what the registers hold.
  static constexpr uint32_t kRoundedRows = 16;
  static constexpr uint32_t kFloatRows = 8;
  static constexpr uint32_t kQueryRows = 8;
  // Whether dot_7bit takes bytes of 8 bits as well.
  static constexpr bool kHas8BitDots = true;

  using F = __m512;   // 16 x f32
  using I = __m512i;  // 16 x i32, or 16 lanes of 4 bytes

  NIGHTSWEEP_SIMD F zero() { return _mm512_setzero_ps(); }
  NIGHTSWEEP_SIMD F splat(float value) { return _mm512_set1_ps(value); }
  NIGHTSWEEP_SIMD F load(const float* at) { return _mm512_loadu_ps(at); }
  NIGHTSWEEP_SIMD void store(float* at, F a) { _mm512_storeu_ps(at, a); }
  NIGHTSWEEP_SIMD F load_half(const void* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(at)));
  }
  NIGHTSWEEP_SIMD void store_half(void* at, F a) {
    _mm256_storeu_si256(
        static_cast<__m256i*>(at),
        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  NIGHTSWEEP_SIMD F load_bfloat(const void* at) {
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  NIGHTSWEEP_SIMD F add(F a, F b) { return _mm512_add_ps(a, b); }
  NIGHTSWEEP_SIMD F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  NIGHTSWEEP_SIMD F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  NIGHTSWEEP_SIMD F div(F a, F b) { return _mm512_div_ps(a, b); }
  NIGHTSWEEP_SIMD F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // a > b ? a : b, and a < b ? a : b; the second when either is not a number.
  NIGHTSWEEP_SIMD F max(F a, F b) { return _mm512_max_ps(a, b); }
  NIGHTSWEEP_SIMD F min(F a, F b) { return _mm512_min_ps(a, b); }
  // a where x < y, else b.
  NIGHTSWEEP_SIMD F select_less(F x, F y, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
  }
  // The first n lanes of a, the rest of b. n may be above 16.
  NIGHTSWEEP_SIMD F first_lanes(uint32_t n, F a, F b) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(_bzhi_u32(0xFFFF, n)), b, a);
  }

  NIGHTSWEEP_SIMD I izero() { return _mm512_setzero_si512(); }
  NIGHTSWEEP_SIMD I isplat(int32_t value) { return _mm512_set1_epi32(value); }
  NIGHTSWEEP_SIMD I iload(const void* at) { return _mm512_loadu_si512(at); }
  NIGHTSWEEP_SIMD I iload_u8(const void* at) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  }
  NIGHTSWEEP_SIMD I iload_s8(const void* at) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  }
  // The low byte of each lane.
  NIGHTSWEEP_SIMD void istore_s8(void* at, I a) {
    _mm_storeu_si128(static_cast<__m128i*>(at), _mm512_cvtepi32_epi8(a));
  }
  NIGHTSWEEP_SIMD void istore(void* at, I a) { _mm512_storeu_si512(at, a); }
  NIGHTSWEEP_SIMD I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
  NIGHTSWEEP_SIMD I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
  NIGHTSWEEP_SIMD I imax(I a, I b) { return _mm512_max_epi32(a, b); }
  NIGHTSWEEP_SIMD I iand(I a, I b) { return _mm512_and_si512(a, b); }
  NIGHTSWEEP_SIMD I ior(I a, I b) { return _mm512_or_si512(a, b); }
  NIGHTSWEEP_SIMD I ixor(I a, I b) { return _mm512_xor_si512(a, b); }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_left(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  NIGHTSWEEP_SIMD I shift_right(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  // Each lane by its own count below 32.
  NIGHTSWEEP_SIMD I rotate_left_by(I a, I counts) { return _mm512_rolv_epi32(a, counts); }
  NIGHTSWEEP_SIMD F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  NIGHTSWEEP_SIMD I bits_of(F a) { return _mm512_castps_si512(a); }
  NIGHTSWEEP_SIMD F from_bits(I a) { return _mm512_castsi512_ps(a); }

  // sum + the four products of each lane's bytes; w unsigned, x four signed bytes, |x| <= 127.
  // dot_7bit: bytes of w below 128.
  NIGHTSWEEP_SIMD I dot_7bit(I sum, I w, int32_t x) {
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(x));
  }
  NIGHTSWEEP_SIMD I dot_8bit(I sum, I w, int32_t x) { return dot_7bit(sum, w, x); }

  // For weights that will be read soon.
  NIGHTSWEEP_SIMD void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace nightsweep::cpu
