// Single values of a weight matrix, exactly as the reference decoder (kernels/quant.h) has them,
// from the file's layout and from the packed one. For packing, embedding and the exact path; not
// fast.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/linear_layout.h"

namespace nightsweep::cuda {

__device__ __forceinline__ uint32_t read16(const uint8_t* at) {
  return *reinterpret_cast<const uint16_t*>(at);
}
__device__ __forceinline__ float to_float(uint32_t half_bits) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(half_bits)));
}
__device__ __forceinline__ float read_half(const uint8_t* at) {
  return to_float(read16(at));
}

template <QuantType kType>
constexpr uint32_t file_block_elems() {
  switch (kType) {
    case QuantType::f32:
    case QuantType::f16:
    case QuantType::bf16:
      return 1;
    case QuantType::q4_k:
    case QuantType::q5_k:
    case QuantType::q6_k:
      return 256;
    default:
      return 32;
  }
}

template <QuantType kType>
constexpr uint32_t file_block_bytes() {
  switch (kType) {
    case QuantType::f32:
      return 4;
    case QuantType::f16:
    case QuantType::bf16:
      return 2;
    case QuantType::q4_0:
      return 18;
    case QuantType::q4_1:
      return 20;
    case QuantType::q5_0:
      return 22;
    case QuantType::q5_1:
      return 24;
    case QuantType::q8_0:
      return 34;
    case QuantType::q4_k:
      return 144;
    case QuantType::q5_k:
      return 176;
    case QuantType::q6_k:
      return 210;
  }
  return 0;
}

// How far a row's scales are shifted against the raw bits (linear_layout.h).
template <QuantType kType>
__device__ __forceinline__ uint32_t raw_bits_shift(uint32_t row) {
  return kType == QuantType::q8_0 || row < 8 ? 24 : 20;
}

// The pattern that stands for zero where there is no weight; its scale is zero as well.
template <QuantType kType>
__device__ __forceinline__ uint32_t zero_quant() {
  return kType == QuantType::q8_0 ? 128 : 0;
}

struct ScaleAndMin {
  uint32_t scale;
  uint32_t min;
};

// The 6-bit scale and minimum of sub-block j in the 12 bytes of Q4_K and Q5_K.
__device__ __forceinline__ ScaleAndMin file_scale_and_min(const uint8_t* sc, uint32_t j) {
  if (j < 4) return {sc[j] & 63U, sc[j + 4] & 63U};
  return {
      (sc[j + 4] & 15U) | (uint32_t{sc[j - 4]} >> 6) << 4,
      (uint32_t{sc[j + 4]} >> 4) | (uint32_t{sc[j]} >> 6) << 4};
}

__device__ __forceinline__ uint32_t file_nibble(const uint8_t* bytes, uint32_t index, bool high) {
  return high ? bytes[index] >> 4 : bytes[index] & 15U;
}

// The bits of a value as the packed layout holds them: unsigned, with the offset in (Q8_0: sign bit
// turned); whole floats.
template <QuantType kType>
__device__ __forceinline__ uint32_t file_quant(const uint8_t* row, uint32_t col) {
  const uint8_t* const block =
      row + col / file_block_elems<kType>() * size_t{file_block_bytes<kType>()};
  const uint32_t n = col % file_block_elems<kType>();
  if constexpr (kType == QuantType::f32) {
    return read16(block) | read16(block + 2) << 16;
  } else if constexpr (kType == QuantType::f16 || kType == QuantType::bf16) {
    return read16(block);
  } else if constexpr (kType == QuantType::q4_0) {
    return file_nibble(block + 2, n % 16, n >= 16);
  } else if constexpr (kType == QuantType::q4_1) {
    return file_nibble(block + 4, n % 16, n >= 16);
  } else if constexpr (kType == QuantType::q5_0) {
    const uint32_t high = block[2 + n / 8] >> (n % 8) & 1U;
    return file_nibble(block + 6, n % 16, n >= 16) | high << 4;
  } else if constexpr (kType == QuantType::q5_1) {
    const uint32_t high = block[4 + n / 8] >> (n % 8) & 1U;
    return file_nibble(block + 8, n % 16, n >= 16) | high << 4;
  } else if constexpr (kType == QuantType::q8_0) {
    return block[2 + n] ^ 0x80U;
  } else if constexpr (kType == QuantType::q4_k) {
    return file_nibble(block + 16, 32 * (n / 64) + n % 32, n / 32 % 2 == 1);
  } else if constexpr (kType == QuantType::q5_k) {
    const uint32_t high = block[16 + n % 32] >> (n / 32) & 1U;
    return file_nibble(block + 48, 32 * (n / 64) + n % 32, n / 32 % 2 == 1) | high << 4;
  } else {
    const uint32_t half = n / 128;
    const uint32_t group = n % 128 / 32;
    const uint32_t low = file_nibble(block, 64 * half + 32 * (group % 2) + n % 32, group >= 2);
    const uint32_t high = block[128 + 32 * half + n % 32] >> (2 * group) & 3U;
    return low | high << 4;
  }
}

// The reference's arithmetic: quants and scales as floats, one rounding an operation.
template <QuantType kType>
__device__ __forceinline__ float centered(float d, uint32_t quant) {
  constexpr int kCenter = kType == QuantType::q4_0   ? 8
                          : kType == QuantType::q5_0 ? 16
                          : kType == QuantType::q8_0 ? 128
                                                     : 32;
  return __fmul_rn(d, static_cast<float>(static_cast<int>(quant) - kCenter));
}

template <QuantType kType>
__device__ __forceinline__ float file_value(const uint8_t* row, uint32_t col) {
  const uint32_t quant = file_quant<kType>(row, col);
  const uint8_t* const block =
      row + col / file_block_elems<kType>() * size_t{file_block_bytes<kType>()};
  const uint32_t n = col % file_block_elems<kType>();
  if constexpr (kType == QuantType::f32) {
    return __uint_as_float(quant);
  } else if constexpr (kType == QuantType::bf16) {
    return __uint_as_float(quant << 16);
  } else if constexpr (kType == QuantType::f16) {
    return to_float(quant);
  } else if constexpr (kType == QuantType::q4_1 || kType == QuantType::q5_1) {
    return __fadd_rn(__fmul_rn(read_half(block), static_cast<float>(quant)), read_half(block + 2));
  } else if constexpr (kType == QuantType::q4_k || kType == QuantType::q5_k) {
    const ScaleAndMin sm = file_scale_and_min(block + 4, n / 32);
    const float ds = __fmul_rn(read_half(block), static_cast<float>(sm.scale));
    const float dm = __fmul_rn(read_half(block + 2), static_cast<float>(sm.min));
    return __fsub_rn(__fmul_rn(ds, static_cast<float>(quant)), dm);
  } else if constexpr (kType == QuantType::q6_k) {
    const float scale = static_cast<float>(static_cast<int8_t>(block[192 + n / 16]));
    return centered<kType>(__fmul_rn(read_half(block + 208), scale), quant);
  } else {
    return centered<kType>(read_half(block), quant);
  }
}

template <QuantType kType>
__device__ __forceinline__ float packed_value(const uint8_t* panel, uint32_t row, uint32_t col) {
  constexpr PackedLayout kLayout = packed_layout(kType);
  const uint32_t chunk = col / kChunk;
  const uint32_t step = col % kChunk / 16;
  const uint32_t pair = row / 8 + 2 * (col % 16 / 8);
  const uint32_t lane = 4 * (row % 8) + col % 8 / 2;
  const uint32_t second = col % 2;
  const uint8_t* const at = panel + kPanelHeaderBytes + kLayout.chunk_offset(chunk);
  if constexpr (kType == QuantType::f32) {
    return reinterpret_cast<const float*>(
        at + 1024 * step + 512 * (pair / 2) + 16 * lane)[2 * (pair % 2) + second];
  } else if constexpr (kLayout.quant_bytes == 2048) {
    const uint32_t bits = read16(at + 512 * step + 16 * lane + 4 * pair + 2 * second);
    return kType == QuantType::bf16 ? __uint_as_float(bits << 16) : to_float(bits);
  } else {
    const int exponent = reinterpret_cast<const int16_t*>(panel)[row];
    const int d_exponent = -exponent - static_cast<int>(raw_bits_shift<kType>(row));
    uint32_t quant;
    if constexpr (kType == QuantType::q8_0) {
      quant = at[512 * (step / 2) + 16 * lane + 8 * (step % 2) + 2 * pair + second];
    } else {
      const auto word = [at](uint32_t offset) {
        return *reinterpret_cast<const uint32_t*>(at + offset);
      };
      quant = word(16 * lane + 4 * step) >> (4 * pair + 16 * second) & 15U;
      if constexpr (kLayout.high_bytes == 128) {
        const uint32_t bit = (4 * (pair + 1) + step) % 16;
        quant |= (word(512 + 4 * lane) >> (bit + 16 * second) & 1U) << 4;
      }
      if constexpr (kLayout.high_bytes == 256) {
        const uint32_t bit = (4 * (pair + 1) + 2 * (step % 2)) % 16;
        quant |= (word(512 + 8 * lane + 4 * (step / 2)) >> (bit + 16 * second) & 3U) << 4;
      }
    }
    const uint8_t* const block_scales =
        at - chunk % 4 * kLayout.chunk_bytes() - kLayout.scale_bytes;
    const uint8_t* const chunk_scales = at + kLayout.quant_bytes + kLayout.high_bytes;
    if constexpr (kType == QuantType::q4_k || kType == QuantType::q5_k) {
      const uint8_t* const scales = block_scales + 16 * row;
      const uint32_t sub_block = 2 * chunk % 8 + step / 2;
      uint32_t fields;
      if (sub_block < 6) {
        fields =
            reinterpret_cast<const uint32_t*>(scales)[1 + sub_block / 2] >> (6 * (sub_block % 2));
      } else {
        const uint32_t i = sub_block - 6;
        fields = (reinterpret_cast<const uint32_t*>(scales)[1 + i] >> 12 & 0x000F000FU) |
                 (reinterpret_cast<const uint32_t*>(scales)[3] >> (12 + 2 * i) & 0x00030003U) << 4;
      }
      const float d = ldexpf(read_half(scales), d_exponent);
      const float dmin = -ldexpf(read_half(scales + 2), -exponent - kMinimumShift);
      const float ds = __fmul_rn(d, static_cast<float>(fields & 63U));
      const float dm = __fmul_rn(dmin, static_cast<float>(fields >> 16 & 63U));
      return __fsub_rn(__fmul_rn(ds, static_cast<float>(quant)), dm);
    } else if constexpr (kType == QuantType::q6_k) {
      const float scale = static_cast<float>(
          static_cast<int>(block_scales[16 * row + 4 * (chunk % 4) + step]) - 128);
      const float d =
          ldexpf(read_half(block_scales + 256 + 4 * (row % 8) + 2 * (row / 8)), d_exponent);
      return centered<kType>(__fmul_rn(d, scale), quant);
    } else if constexpr (kType == QuantType::q4_1 || kType == QuantType::q5_1) {
      const uint8_t* const scales = chunk_scales + 16 * (row % 8) + 8 * (row / 8);
      const float d = ldexpf(read_half(scales + 2 * (step / 2)), d_exponent);
      const float m = ldexpf(read_half(scales + 4 + 2 * (step / 2)), -exponent - kMinimumShift);
      return __fadd_rn(__fmul_rn(d, static_cast<float>(quant)), m);
    } else {
      const uint8_t* const scales = chunk_scales + 8 * (row % 8) + 4 * (row / 8);
      return centered<kType>(ldexpf(read_half(scales + 2 * (step / 2)), d_exponent), quant);
    }
  }
}

}  // namespace nightsweep::cuda
