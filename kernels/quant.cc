#include "kernels/quant.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace nightsweep {
namespace {

// Numbers and sizes as in llama.cpp's ggml.h and ggml-common.h. 4, 5, 31-33 and 36-38 were types
// once and may not be read any more.
constexpr QuantTraits kTraits[] = {
    {"F32", 0, 1, 4, true},          {"F16", 1, 1, 2, true},
    {"Q4_0", 2, 32, 18, true},       {"Q4_1", 3, 32, 20, true},
    {"Q5_0", 6, 32, 22, true},       {"Q5_1", 7, 32, 24, true},
    {"Q8_0", 8, 32, 34, true},       {"Q8_1", 9, 32, 36, false},
    {"Q2_K", 10, 256, 84, false},    {"Q3_K", 11, 256, 110, false},
    {"Q4_K", 12, 256, 144, true},    {"Q5_K", 13, 256, 176, true},
    {"Q6_K", 14, 256, 210, true},    {"Q8_K", 15, 256, 292, false},
    {"IQ2_XXS", 16, 256, 66, false}, {"IQ2_XS", 17, 256, 74, false},
    {"IQ3_XXS", 18, 256, 98, false}, {"IQ1_S", 19, 256, 50, false},
    {"IQ4_NL", 20, 32, 18, false},   {"IQ3_S", 21, 256, 110, false},
    {"IQ2_S", 22, 256, 82, false},   {"IQ4_XS", 23, 256, 136, false},
    {"I8", 24, 1, 1, false},         {"I16", 25, 1, 2, false},
    {"I32", 26, 1, 4, false},        {"I64", 27, 1, 8, false},
    {"F64", 28, 1, 8, false},        {"IQ1_M", 29, 256, 56, false},
    {"BF16", 30, 1, 2, true},        {"TQ1_0", 34, 256, 54, false},
    {"TQ2_0", 35, 256, 66, false},   {"MXFP4", 39, 32, 17, false},
    {"NVFP4", 40, 64, 36, false},    {"Q1_0", 41, 128, 18, false},
    {"Q2_0", 42, 64, 18, false},
};

constexpr uint32_t kMaxType = 42;

constexpr auto kTraitsByNumber = [] {
  std::array<const QuantTraits*, kMaxType + 1> table{};
  for (const QuantTraits& traits : kTraits)
    table[traits.ggml_type] = &traits;
  return table;
}();

float read_half(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return half_to_float(bits);
}

uint32_t read_u32(const std::byte* at) {
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint32_t nibble(const std::byte* bytes, uint32_t index, bool high) {
  const auto value = std::to_integer<uint32_t>(bytes[index]);
  return high ? value >> 4 : value & 15;
}

void dequantize_q4_0(const std::byte* block, float* dst) {
  const float d = read_half(block);
  for (uint32_t n = 0; n < 32; ++n) {
    dst[n] = d * static_cast<float>(static_cast<int>(nibble(block + 2, n % 16, n >= 16)) - 8);
  }
}

void dequantize_q4_1(const std::byte* block, float* dst) {
  const float d = read_half(block);
  const float m = read_half(block + 2);
  for (uint32_t n = 0; n < 32; ++n) {
    dst[n] = d * static_cast<float>(nibble(block + 4, n % 16, n >= 16)) + m;
  }
}

uint32_t five_bits(uint32_t qh, const std::byte* qs, uint32_t n) {
  return nibble(qs, n % 16, n >= 16) | ((qh >> n) & 1) << 4;
}

void dequantize_q5_0(const std::byte* block, float* dst) {
  const float d = read_half(block);
  const uint32_t qh = read_u32(block + 2);
  for (uint32_t n = 0; n < 32; ++n) {
    dst[n] = d * static_cast<float>(static_cast<int>(five_bits(qh, block + 6, n)) - 16);
  }
}

void dequantize_q5_1(const std::byte* block, float* dst) {
  const float d = read_half(block);
  const float m = read_half(block + 2);
  const uint32_t qh = read_u32(block + 4);
  for (uint32_t n = 0; n < 32; ++n) {
    dst[n] = d * static_cast<float>(five_bits(qh, block + 8, n)) + m;
  }
}

void dequantize_q8_0(const std::byte* block, float* dst) {
  const float d = read_half(block);
  for (uint32_t n = 0; n < 32; ++n) {
    dst[n] = d * static_cast<float>(static_cast<int8_t>(block[2 + n]));
  }
}

struct ScaleAndMin {
  float scale;
  float min;
};

// The 6-bit scale and minimum of sub-block j in the 12 bytes of Q4_K and Q5_K.
ScaleAndMin k_scale_and_min(const std::byte* sc, uint32_t j) {
  const auto at = [sc](uint32_t index) { return std::to_integer<uint32_t>(sc[index]); };
  if (j < 4) return {static_cast<float>(at(j) & 63), static_cast<float>(at(j + 4) & 63)};
  return {
      static_cast<float>((at(j + 4) & 15) | (at(j - 4) >> 6) << 4),
      static_cast<float>((at(j + 4) >> 4) | (at(j) >> 6) << 4)};
}

void dequantize_q4_k(const std::byte* block, float* dst) {
  const float d = read_half(block);
  const float dmin = read_half(block + 2);
  for (uint32_t j = 0; j < 8; ++j) {
    const auto [scale, min] = k_scale_and_min(block + 4, j);
    const float ds = d * scale;
    const float dm = dmin * min;
    for (uint32_t n = 0; n < 32; ++n) {
      const uint32_t q = nibble(block + 16, 32 * (j / 2) + n, j % 2 == 1);
      dst[32 * j + n] = ds * static_cast<float>(q) - dm;
    }
  }
}

void dequantize_q5_k(const std::byte* block, float* dst) {
  const float d = read_half(block);
  const float dmin = read_half(block + 2);
  for (uint32_t j = 0; j < 8; ++j) {
    const auto [scale, min] = k_scale_and_min(block + 4, j);
    const float ds = d * scale;
    const float dm = dmin * min;
    for (uint32_t n = 0; n < 32; ++n) {
      const uint32_t high = std::to_integer<uint32_t>(block[16 + n]) >> j & 1;
      const uint32_t q = nibble(block + 48, 32 * (j / 2) + n, j % 2 == 1) | high << 4;
      dst[32 * j + n] = ds * static_cast<float>(q) - dm;
    }
  }
}

void dequantize_q6_k(const std::byte* block, float* dst) {
  const float d = read_half(block + 208);
  for (uint32_t n = 0; n < 256; ++n) {
    const uint32_t half = n / 128;
    const uint32_t group = n % 128 / 32;
    const uint32_t low = nibble(block, 64 * half + 32 * (group % 2) + n % 32, group >= 2);
    const uint32_t high =
        std::to_integer<uint32_t>(block[128 + 32 * half + n % 32]) >> (2 * group) & 3;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + n / 16]));
    dst[n] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
}

template <typename BlockFunction>
void for_each_block(
    QuantType type,
    const std::byte* src,
    float* dst,
    size_t n_elems,
    BlockFunction dequantize_block) {
  const QuantTraits& traits = quant_traits(type);
  assert(n_elems % traits.block_elems == 0);
  for (size_t i = 0; i < n_elems / traits.block_elems; ++i) {
    dequantize_block(src + i * traits.block_bytes, dst + i * traits.block_elems);
  }
}

}  // namespace

const QuantTraits* find_quant_traits(uint32_t ggml_type) {
  return ggml_type <= kMaxType ? kTraitsByNumber[ggml_type] : nullptr;
}

const QuantTraits& quant_traits(QuantType type) {
  return *kTraitsByNumber[static_cast<uint32_t>(type)];
}

size_t quant_bytes(QuantType type, size_t n_elems) {
  const QuantTraits& traits = quant_traits(type);
  return n_elems / traits.block_elems * traits.block_bytes;
}

void dequantize(QuantType type, const std::byte* src, float* dst, size_t n_elems) {
  switch (type) {
    case QuantType::f32:
      std::memcpy(dst, src, n_elems * sizeof(float));
      return;
    case QuantType::f16:
      for (size_t i = 0; i < n_elems; ++i)
        dst[i] = read_half(src + 2 * i);
      return;
    case QuantType::bf16:
      for (size_t i = 0; i < n_elems; ++i) {
        uint16_t high = 0;
        std::memcpy(&high, src + 2 * i, sizeof high);
        dst[i] = std::bit_cast<float>(static_cast<uint32_t>(high) << 16);
      }
      return;
    case QuantType::q4_0:
      return for_each_block(type, src, dst, n_elems, dequantize_q4_0);
    case QuantType::q4_1:
      return for_each_block(type, src, dst, n_elems, dequantize_q4_1);
    case QuantType::q5_0:
      return for_each_block(type, src, dst, n_elems, dequantize_q5_0);
    case QuantType::q5_1:
      return for_each_block(type, src, dst, n_elems, dequantize_q5_1);
    case QuantType::q8_0:
      return for_each_block(type, src, dst, n_elems, dequantize_q8_0);
    case QuantType::q4_k:
      return for_each_block(type, src, dst, n_elems, dequantize_q4_k);
    case QuantType::q5_k:
      return for_each_block(type, src, dst, n_elems, dequantize_q5_k);
    case QuantType::q6_k:
      return for_each_block(type, src, dst, n_elems, dequantize_q6_k);
  }
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 31U;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 31) {
    // A signalling NaN becomes quiet, as the processors' own conversion does.
    const uint32_t quiet = fraction != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13 | quiet);
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  }
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | (magnitude >> 13 & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {
    // Adding 0.5 leaves the subnormal's 10 bits at the low end, rounded to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = magnitude >> 13 & 1U;
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000U + 0xFFFU + odd) >> 13);
}

}  // namespace nightsweep
