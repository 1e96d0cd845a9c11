// From packed weights (linear_layout.h) to the A operand of the tensor cores, one struct a type.
//
//   Bits    what a lane holds of one chunk of 64 columns
//   Header  what it holds of the scales of a block
//   Scales  scales of one chunk, as half pairs
//   decode<s>()  the four pairs of step s: f16(q * D + M), one rounding. q is taken as a subnormal
//                number straight from its bits: a mask and one fused multiply-add a pair.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/linear_layout.h"

namespace nightsweep::cuda {

__device__ __forceinline__ uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ uint32_t half2_mul(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
__device__ __forceinline__ uint32_t half2_add(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
// Both halves of the result are the low (high) half of v.
__device__ __forceinline__ uint32_t low_twice(uint32_t v) {
  uint32_t d;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(v));
  return d;
}
__device__ __forceinline__ uint32_t high_twice(uint32_t v) {
  uint32_t d;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(v));
  return d;
}
// (a & mask) | b in one instruction.
template <uint32_t kMask>
__device__ __forceinline__ uint32_t masked_or(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "n"(kMask), "r"(b));
  return d;
}

// Loads of weights. They pass once: they should not drive the input out of the first-level cache.
__device__ __forceinline__ void load_weights(uint32_t* to4, const uint8_t* at) {
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(to4[0]), "=r"(to4[1]), "=r"(to4[2]), "=r"(to4[3])
      : "l"(at));
}
__device__ __forceinline__ void load_weights(uint4& to, const uint8_t* at) {
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
      : "l"(at));
}
__device__ __forceinline__ void load_weights(uint32_t& to, uint32_t& to_next, const uint8_t* at) {
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(to), "=r"(to_next) : "l"(at));
}
__device__ __forceinline__ void load_weights(uint32_t& to, const uint8_t* at) {
  asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(to) : "l"(at));
}

// The same from shared memory.
__device__ __forceinline__ void load_weights(uint32_t* to4, uint32_t at) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to4[0]), "=r"(to4[1]), "=r"(to4[2]), "=r"(to4[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_weights(uint4& to, uint32_t at) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_weights(uint32_t& to, uint32_t& to_next, uint32_t at) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to), "=r"(to_next) : "r"(at) : "memory");
}
__device__ __forceinline__ void load_weights(uint32_t& to, uint32_t at) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(at) : "memory");
}

// Where a lane finds its part of a block of packed weights: pointers, or addresses in shared
// memory.
template <QuantType kType, typename Address>
struct LaneAddresses {
  static constexpr PackedLayout kLayout = packed_layout(kType);
  Address quants;
  Address high;
  Address scales;        // of row g; those of row g + 8 after them
  const uint8_t* panel;  // its header

  __device__ __forceinline__ void set_block(Address block, uint32_t lane) {
    const Address bits = block + kLayout.block_header_bytes();
    constexpr uint32_t kScaleStride = kLayout.block_chunks == 4 ? 16 : kLayout.scale_bytes / 8;
    quants = bits + 16 * lane;
    high = bits + kLayout.quant_bytes + kLayout.high_bytes / 32 * lane;
    scales = (kLayout.block_chunks == 4 ? block : bits + kLayout.quant_bytes + kLayout.high_bytes) +
             kScaleStride * (lane / 4);
  }
};

// In memory; moves on by whole blocks.
template <QuantType kType>
struct LanePointers : LaneAddresses<kType, const uint8_t*> {
  using Base = LaneAddresses<kType, const uint8_t*>;
  using Base::high;
  using Base::kLayout;
  using Base::quants;
  using Base::scales;

  // chunk: the first one of a block
  __device__ __forceinline__ void set(const uint8_t* panel_data, uint32_t chunk, uint32_t lane) {
    this->set_block(
        panel_data + kPanelHeaderBytes +
            size_t{chunk / kLayout.block_chunks} * kLayout.block_bytes(),
        lane);
    this->panel = panel_data;
  }
  __device__ __forceinline__ void advance(uint32_t n_blocks) {
    const uint32_t step = n_blocks * kLayout.block_bytes();
    quants += step;
    if constexpr (kLayout.high_bytes != 0) high += step;
    if constexpr (kLayout.scale_bytes != 0) scales += step;
  }
};

// The 4-bit part of step s in the lowest mantissa bits: of rows g in bits 0-3, of rows g + 8 in
// 4-7.
struct FourBits {
  uint32_t pair[4];
};
__device__ __forceinline__ FourBits four_bits(uint32_t word) {
  const uint32_t upper = word >> 8;
  return {{word & 0x000F000FU, word & 0x00F000F0U, upper & 0x000F000FU, upper & 0x00F000F0U}};
}

template <int kHighBits>
struct SmallBits {
  static constexpr int kHighWords = kHighBits;  // of 64 columns: 0, 1 or 2 words a lane
  uint32_t q[4];
  uint32_t high[kHighWords == 0 ? 1 : kHighWords];

  // offset: of the chunk, against where the pointers are
  template <typename Pointers>
  __device__ __forceinline__ void load(const Pointers& at, uint32_t offset) {
    load_weights(q, at.quants + offset);
    if constexpr (kHighWords == 1) load_weights(high[0], at.high + offset);
    if constexpr (kHighWords == 2) load_weights(high[0], high[1], at.high + offset);
  }

  template <int kStep>
  __device__ __forceinline__ FourBits raw() const {
    FourBits v = four_bits(q[kStep]);
    if constexpr (kHighWords == 1) {
      const uint32_t h = high[0] >> kStep;
      const uint32_t swapped = __byte_perm(high[0], 0, 0x2301) >> kStep;
      v.pair[0] = masked_or<0x00100010U>(h, v.pair[0]);
      v.pair[1] = masked_or<0x01000100U>(h, v.pair[1]);
      v.pair[2] = masked_or<0x00100010U>(swapped, v.pair[2]);
      v.pair[3] = masked_or<0x01000100U>(swapped, v.pair[3]);
    }
    if constexpr (kHighWords == 2) {
      const uint32_t word = high[kStep / 2];
      const uint32_t h = word >> (2 * (kStep % 2));
      const uint32_t swapped = __byte_perm(word, 0, 0x2301) >> (2 * (kStep % 2));
      v.pair[0] = masked_or<0x00300030U>(h, v.pair[0]);
      v.pair[1] = masked_or<0x03000300U>(h, v.pair[1]);
      v.pair[2] = masked_or<0x00300030U>(swapped, v.pair[2]);
      v.pair[3] = masked_or<0x03000300U>(swapped, v.pair[3]);
    }
    return v;
  }
};

struct ByteBits {
  uint32_t q[8];
  template <typename Pointers>
  __device__ __forceinline__ void load(const Pointers& at, uint32_t offset) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_weights(q + 4 * i, at.quants + offset + 512 * i);
  }
  template <int kStep>
  __device__ __forceinline__ FourBits raw() const {
    const uint32_t first = q[2 * kStep];
    const uint32_t second = q[2 * kStep + 1];
    return {
        {__byte_perm(first, 0, 0x4140), __byte_perm(first, 0, 0x4342),
         __byte_perm(second, 0, 0x4140), __byte_perm(second, 0, 0x4342)}};
  }
};

// 2^-kMinimumShift as a half.
inline constexpr uint16_t kUndoMinimumShift = 0x1400;
static_assert(kMinimumShift == 10);

// D and M of a chunk with blocks of 32 columns: halves are blocks.
struct BlockScales {
  uint32_t d[2];  // rows g, g + 8
  uint32_t m[2];
  template <int kStep>
  __device__ __forceinline__ uint32_t scale(int upper_row) const {
    return kStep < 2 ? low_twice(d[upper_row]) : high_twice(d[upper_row]);
  }
  template <int kStep>
  __device__ __forceinline__ uint32_t offset(int upper_row) const {
    return kStep < 2 ? low_twice(m[upper_row]) : high_twice(m[upper_row]);
  }
};

constexpr uint32_t twice(uint16_t half_bits) {
  return half_bits * 0x10001U;
}

template <int kStep, typename Bits, typename Scales>
__device__ __forceinline__ void
decode_quants(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
  const FourBits raw = bits.template raw<kStep>();
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    pairs[p] = half2_fma(
        raw.pair[p], scales.template scale<kStep>(p % 2), scales.template offset<kStep>(p % 2));
  }
}

// Blocks of 32 with a scale: value = d (q - center). Centers are powers of two, so the offset
// is exact: d stands multiplied by 2^24 (2^20), and the factor -center * 2^-24 is a subnormal half.
template <typename BitsType, int kCenter, int kUpperShift>
struct CenteredFormat {
  using Bits = BitsType;
  using Scales = BlockScales;
  struct Header {
    uint2 d;
  };
  template <typename Pointers>
  static __device__ __forceinline__ void
  load_header(Header& h, const Pointers& at, uint32_t offset, uint32_t) {
    load_weights(h.d.x, h.d.y, at.scales + offset);
  }
  static __device__ __forceinline__ void make_scales(Scales& s, const Header& h, int) {
    s.d[0] = h.d.x;
    s.d[1] = h.d.y;
    s.m[0] = half2_mul(h.d.x, twice(0x8000U | kCenter));
    s.m[1] = half2_mul(h.d.y, twice(0x8000U | (kCenter << kUpperShift)));
  }
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
    decode_quants<kStep>(pairs, bits, scales);
  }
};

template <typename BitsType>
struct MinimumFormat {
  using Bits = BitsType;
  using Scales = BlockScales;
  struct Header {
    uint4 dm;
  };
  template <typename Pointers>
  static __device__ __forceinline__ void
  load_header(Header& h, const Pointers& at, uint32_t offset, uint32_t) {
    load_weights(h.dm, at.scales + offset);
  }
  static __device__ __forceinline__ void make_scales(Scales& s, const Header& h, int) {
    s.d[0] = h.dm.x;
    s.m[0] = half2_mul(h.dm.y, twice(kUndoMinimumShift));
    s.d[1] = h.dm.z;
    s.m[1] = half2_mul(h.dm.w, twice(kUndoMinimumShift));
  }
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
    decode_quants<kStep>(pairs, bits, scales);
  }
};

// Q4_K and Q5_K.
template <typename BitsType>
struct SuperMinimumFormat {
  using Bits = BitsType;
  struct Header {
    uint4 row[2];
  };
  struct Scales {
    uint32_t dm[2][2];  // (row, sub-block): D low, M high
    template <int kStep>
    __device__ __forceinline__ uint32_t scale(int upper_row) const {
      return low_twice(dm[upper_row][kStep / 2]);
    }
    template <int kStep>
    __device__ __forceinline__ uint32_t offset(int upper_row) const {
      return high_twice(dm[upper_row][kStep / 2]);
    }
  };
  template <typename Pointers>
  static __device__ __forceinline__ void
  load_header(Header& h, const Pointers& at, uint32_t offset, uint32_t) {
    load_weights(h.row[0], at.scales + offset);
    load_weights(h.row[1], at.scales + offset + 128);
  }
  // REQUIRES: chunk is known when this is compiled.
  static __device__ __forceinline__ void make_scales(Scales& s, const Header& h, int chunk) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& r = h.row[i];
      const uint32_t fields = chunk == 0   ? r.y
                              : chunk == 1 ? r.z
                              : chunk == 2 ? r.w
                                           : last_fields(r);
      s.dm[i][0] = scaled(fields, r.x);
      s.dm[i][1] = scaled(fields >> 6, r.x);
    }
  }
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
    decode_quants<kStep>(pairs, bits, scales);
  }

 private:
  static __device__ __forceinline__ uint32_t last_fields(const uint4& r) {
    return ((r.y >> 12) & 0x000F000FU) | ((r.w >> 8) & 0x00300030U) | ((r.z >> 6) & 0x03C003C0U) |
           ((r.w >> 4) & 0x0C000C00U);
  }
  // Six-bit scale and minimum as exact halves (1024 + s in the bits, minus 1024; the minimum times
  // 2^-10 on the way), times d and -dmin.
  static __device__ __forceinline__ uint32_t scaled(uint32_t fields, uint32_t d) {
    const uint32_t biased = masked_or<0x003F003FU>(fields, 0x64006400U);
    constexpr uint32_t kFactors = 0x3C00U | uint32_t{kUndoMinimumShift} << 16;
    constexpr uint32_t kOffsets = 0xE400U | 0xBC00U << 16;  // -1024, -1
    return half2_mul(half2_fma(biased, kFactors, kOffsets), d);
  }
};

struct Q6KFormat {
  using Bits = SmallBits<2>;
  struct Header {
    uint4 row[2];
    uint32_t d;
  };
  struct Scales {
    uint32_t d[2][2];  // (row, step / 2): halves are steps
    uint32_t m[2][2];
    template <int kStep>
    __device__ __forceinline__ uint32_t scale(int upper_row) const {
      const uint32_t v = d[upper_row][kStep / 2];
      return kStep % 2 == 0 ? low_twice(v) : high_twice(v);
    }
    template <int kStep>
    __device__ __forceinline__ uint32_t offset(int upper_row) const {
      const uint32_t v = m[upper_row][kStep / 2];
      return kStep % 2 == 0 ? low_twice(v) : high_twice(v);
    }
  };
  template <typename Pointers>
  static __device__ __forceinline__ void
  load_header(Header& h, const Pointers& at, uint32_t offset, uint32_t g) {
    load_weights(h.row[0], at.scales + offset);
    load_weights(h.row[1], at.scales + offset + 128);
    load_weights(h.d, at.scales - 12 * g + offset + 256);
  }
  static __device__ __forceinline__ void make_scales(Scales& s, const Header& h, int chunk) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& r = h.row[i];
      const uint32_t bytes = chunk == 0 ? r.x : chunk == 1 ? r.y : chunk == 2 ? r.z : r.w;
      const uint32_t d = i == 0 ? low_twice(h.d) : high_twice(h.d);
      // 1024 + (scale + 128), minus 1152.
      const uint32_t first = half2_add(__byte_perm(bytes, 0x64646464U, 0x4140), twice(0xE480));
      const uint32_t second = half2_add(__byte_perm(bytes, 0x64646464U, 0x4342), twice(0xE480));
      // -32 * 2^-24 as a subnormal half; rows g + 8 lie four bits higher.
      const uint32_t center = i == 0 ? twice(0x8020) : twice(0x8200);
      s.d[i][0] = half2_mul(first, d);
      s.d[i][1] = half2_mul(second, d);
      s.m[i][0] = half2_mul(s.d[i][0], center);
      s.m[i][1] = half2_mul(s.d[i][1], center);
    }
  }
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
    decode_quants<kStep>(pairs, bits, scales);
  }
};

__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

// F16 goes in as it is.
struct F16Format {
  struct Header {};
  struct Scales {};
  template <int kWords>
  struct Words {
    uint32_t q[kWords];
    template <typename Pointers>
    __device__ __forceinline__ void load(const Pointers& at, uint32_t offset) {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i)
        load_weights(q + 4 * i, at.quants + offset + 512 * i);
    }
  };
  using Bits = Words<16>;
  template <typename Pointers>
  static __device__ __forceinline__ void load_header(Header&, const Pointers&, uint32_t, uint32_t) {
  }
  static __device__ __forceinline__ void make_scales(Scales&, const Header&, int) {}
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales&) {
#pragma unroll
    for (int p = 0; p < 4; ++p)
      pairs[p] = bits.q[4 * kStep + p];
  }
};

// BF16 and F32 are multiplied by the row's power of two and rounded to half.
template <bool kWide>
struct ScaledFloatFormat {
  struct Header {
    int exponent[2];  // of rows g, g + 8
  };
  struct Scales {
    float factor[2];
  };
  using Bits = F16Format::Words<kWide ? 32 : 16>;
  template <typename Pointers>
  static __device__ __forceinline__ void
  load_header(Header& h, const Pointers& at, uint32_t, uint32_t g) {
    const int16_t* const exponents = reinterpret_cast<const int16_t*>(at.panel);
    h.exponent[0] = exponents[g];
    h.exponent[1] = exponents[g + 8];
  }
  static __device__ __forceinline__ void make_scales(Scales& s, const Header& h, int) {
    s.factor[0] = __int_as_float((h.exponent[0] + 127) << 23);
    s.factor[1] = __int_as_float((h.exponent[1] + 127) << 23);
  }
  template <int kStep>
  static __device__ __forceinline__ void
  decode(uint32_t (&pairs)[4], const Bits& bits, const Scales& scales) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      float low;
      float high;
      if constexpr (kWide) {
        low = __uint_as_float(bits.q[8 * kStep + 2 * p]);
        high = __uint_as_float(bits.q[8 * kStep + 2 * p + 1]);
      } else {
        low = __uint_as_float(bits.q[4 * kStep + p] << 16);
        high = __uint_as_float(bits.q[4 * kStep + p] & 0xFFFF0000U);
      }
      const float factor = scales.factor[p % 2];
      pairs[p] = pack_halves(low * factor, high * factor);
    }
  }
};

template <QuantType kType>
struct FormatOf;
template <>
struct FormatOf<QuantType::q4_0> : CenteredFormat<SmallBits<0>, 8, 4> {};
template <>
struct FormatOf<QuantType::q5_0> : CenteredFormat<SmallBits<1>, 16, 4> {};
template <>
struct FormatOf<QuantType::q8_0> : CenteredFormat<ByteBits, 128, 0> {};
template <>
struct FormatOf<QuantType::q4_1> : MinimumFormat<SmallBits<0>> {};
template <>
struct FormatOf<QuantType::q5_1> : MinimumFormat<SmallBits<1>> {};
template <>
struct FormatOf<QuantType::q4_k> : SuperMinimumFormat<SmallBits<0>> {};
template <>
struct FormatOf<QuantType::q5_k> : SuperMinimumFormat<SmallBits<1>> {};
template <>
struct FormatOf<QuantType::q6_k> : Q6KFormat {};
template <>
struct FormatOf<QuantType::f16> : F16Format {};
template <>
struct FormatOf<QuantType::bf16> : ScaledFloatFormat<false> {};
template <>
struct FormatOf<QuantType::f32> : ScaledFloatFormat<true> {};

}  // namespace nightsweep::cuda
