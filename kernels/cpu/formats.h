// Decoders of packed blocks: one sub-block of 32 values of 16 rows at a time, as bytes with their
// scales. One struct a type; the values are those of dequantize() in quant.h, bit for bit.
//
//   value = scale * (byte - kOffset) [+ min]     (Q6_K: scales[0] for 16 values, then scales[1])
//
// A block's sub-blocks are decoded in groups of kUnroll, whose members lie in the same bytes: part
// kPart of the group that begins at sub-block j0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"

namespace nightsweep::cpu {
namespace {

// Lane = row of the panel. bytes[i] holds elements 4i to 4i + 3 of the sub-block.
template <class S>
struct SubBlock {
  typename S::I bytes[8];
  typename S::F scales[2];
  typename S::F min;
};

// values: as above. dots: where the set's dot products allow it, high nibbles may stay where they
// are, as 16 times the value with a sixteenth of the scale, which rounds in no other way.
enum class Use { values, dots };

// Scales of a whole block, made once for its sub-blocks.
template <class S, uint32_t kScales, uint32_t kMins>
struct BlockScales {
  typename S::F scales[kScales];
  typename S::F mins[kMins];
};

template <class S>
[[gnu::always_inline]] inline typename S::I low_nibbles(typename S::I words) {
  return S::iand(words, S::isplat(0x0F0F0F0F));
}
template <class S>
[[gnu::always_inline]] inline typename S::I high_nibbles(typename S::I words) {
  return S::iand(S::template shift_right<4>(words), S::isplat(0x0F0F0F0F));
}

template <class S>
[[gnu::always_inline]] inline void decode_nibbles(const std::byte* words, SubBlock<S>& out) {
  for (uint32_t i = 0; i < 4; ++i) {
    const typename S::I word = S::iload(words + 64 * i);
    out.bytes[i] = low_nibbles<S>(word);
    out.bytes[4 + i] = high_nibbles<S>(word);
  }
}

// Bit i of each byte of `high` is the fifth bit of out.bytes[i].
template <class S>
[[gnu::always_inline]] inline void add_fifth_bits(const std::byte* high, SubBlock<S>& out) {
  const typename S::I bits = S::iload(high);
  const typename S::I mask = S::isplat(0x10101010);
  out.bytes[0] = S::ior(out.bytes[0], S::iand(S::template shift_left<4>(bits), mask));
  out.bytes[1] = S::ior(out.bytes[1], S::iand(S::template shift_left<3>(bits), mask));
  out.bytes[2] = S::ior(out.bytes[2], S::iand(S::template shift_left<2>(bits), mask));
  out.bytes[3] = S::ior(out.bytes[3], S::iand(S::template shift_left<1>(bits), mask));
  out.bytes[4] = S::ior(out.bytes[4], S::iand(bits, mask));
  out.bytes[5] = S::ior(out.bytes[5], S::iand(S::template shift_right<1>(bits), mask));
  out.bytes[6] = S::ior(out.bytes[6], S::iand(S::template shift_right<2>(bits), mask));
  out.bytes[7] = S::ior(out.bytes[7], S::iand(S::template shift_right<3>(bits), mask));
}

struct OneSubBlock {
  static constexpr uint32_t kSubBlocks = 1;
  static constexpr uint32_t kUnroll = 1;
  static constexpr bool kTwoScales = false;
  static constexpr bool kIs8Bit = false;
  template <class S>
  struct Scales {};
  template <class S>
  [[gnu::always_inline]] static void read_scales(const std::byte*, Scales<S>&) {}
};

struct Q40 : OneSubBlock {
  static constexpr uint32_t kPanelBlockBytes = 18 * kLanes;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 8;
  static constexpr StartSlot kStart = StartSlot::minus_8;
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t, const Scales<S>&, SubBlock<S>& out) {
    out.scales[0] = S::load_half(block);
    decode_nibbles<S>(block + 32, out);
  }
};

struct Q41 : OneSubBlock {
  static constexpr uint32_t kPanelBlockBytes = 20 * kLanes;
  static constexpr bool kHasMin = true;
  static constexpr int32_t kOffset = 0;
  static constexpr StartSlot kStart = StartSlot::minus_8;  // not used
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t, const Scales<S>&, SubBlock<S>& out) {
    out.scales[0] = S::load_half(block);
    out.min = S::load_half(block + 32);
    decode_nibbles<S>(block + 64, out);
  }
};

struct Q50 : OneSubBlock {
  static constexpr uint32_t kPanelBlockBytes = 22 * kLanes;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 16;
  static constexpr StartSlot kStart = StartSlot::minus_16;
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t, const Scales<S>&, SubBlock<S>& out) {
    out.scales[0] = S::load_half(block);
    decode_nibbles<S>(block + 96, out);
    add_fifth_bits<S>(block + 32, out);
  }
};

struct Q51 : OneSubBlock {
  static constexpr uint32_t kPanelBlockBytes = 24 * kLanes;
  static constexpr bool kHasMin = true;
  static constexpr int32_t kOffset = 0;
  static constexpr StartSlot kStart = StartSlot::minus_8;  // not used
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t, const Scales<S>&, SubBlock<S>& out) {
    out.scales[0] = S::load_half(block);
    out.min = S::load_half(block + 32);
    decode_nibbles<S>(block + 128, out);
    add_fifth_bits<S>(block + 64, out);
  }
};

struct Q80 : OneSubBlock {
  static constexpr uint32_t kPanelBlockBytes = 34 * kLanes;
  static constexpr bool kHasMin = false;
  static constexpr bool kIs8Bit = true;
  static constexpr int32_t kOffset = 128;
  static constexpr StartSlot kStart = StartSlot::minus_128;
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t, const Scales<S>&, SubBlock<S>& out) {
    out.scales[0] = S::load_half(block);
    const auto flip = S::isplat(static_cast<int32_t>(0x80808080U));
    for (uint32_t i = 0; i < 8; ++i) {
      out.bytes[i] = S::ixor(S::iload(block + 32 + 64 * i), flip);
    }
  }
};

// Q4_K and Q5_K: 8 sub-blocks with 6-bit scales and minima.
struct KQuant {
  static constexpr uint32_t kSubBlocks = 8;
  static constexpr uint32_t kUnroll = 2;
  static constexpr bool kHasMin = true;
  static constexpr bool kTwoScales = false;
  static constexpr int32_t kOffset = 0;
  static constexpr StartSlot kStart = StartSlot::minus_8;  // not used
  template <class S>
  using Scales = BlockScales<S, 8, 8>;

  template <class S>
  [[gnu::always_inline]] static void read_scales(const std::byte* block, Scales<S>& out) {
    // Four scales or minima of all lanes at a time, as bytes.
    const typename S::I a = S::iload(block + 64);
    const typename S::I b = S::iload(block + 128);
    const typename S::I c = S::iload(block + 192);
    const typename S::I low6 = S::isplat(0x3F3F3F3F);
    const typename S::I high2 = S::isplat(0x30303030);
    alignas(64) std::byte bytes[16][kLanes];
    S::istore(bytes[0], S::iand(a, low6));
    S::istore(bytes[4], S::ior(low_nibbles<S>(c), S::iand(S::template shift_right<2>(a), high2)));
    S::istore(bytes[8], S::iand(b, low6));
    S::istore(bytes[12], S::ior(high_nibbles<S>(c), S::iand(S::template shift_right<2>(b), high2)));

    const typename S::F d = S::load_half(block);
    // -(dmin * m) has the bits of (-dmin) * m.
    const typename S::I sign = S::isplat(static_cast<int32_t>(0x80000000U));
    const typename S::F minus_dmin =
        S::from_bits(S::ixor(S::bits_of(S::load_half(block + 32)), sign));
    for (uint32_t j = 0; j < 8; ++j) {
      out.scales[j] = S::mul(d, S::to_float(S::iload_u8(bytes[j])));
      out.mins[j] = S::mul(minus_dmin, S::to_float(S::iload_u8(bytes[8 + j])));
    }
  }
};

struct Q4K : KQuant {
  static constexpr uint32_t kPanelBlockBytes = 144 * kLanes;
  static constexpr bool kIs8Bit = false;
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t j0, const Scales<S>& block_scales, SubBlock<S>& out) {
    constexpr bool kInPlace = kUse == Use::dots && S::kHas8BitDots && kPart == 1;
    out.scales[0] = block_scales.scales[j0 + kPart];
    if constexpr (kInPlace) out.scales[0] = S::mul(out.scales[0], S::splat(0.0625F));
    out.min = block_scales.mins[j0 + kPart];
    const std::byte* const words = block + 256 + size_t{256} * j0;
    for (uint32_t i = 0; i < 8; ++i) {
      const typename S::I word = S::iload(words + 64 * i);
      if constexpr (kInPlace) {
        out.bytes[i] = S::iand(word, S::isplat(static_cast<int32_t>(0xF0F0F0F0U)));
      } else {
        out.bytes[i] = kPart == 0 ? low_nibbles<S>(word) : high_nibbles<S>(word);
      }
    }
  }
};

struct Q5K : KQuant {
  static constexpr uint32_t kPanelBlockBytes = 176 * kLanes;
  static constexpr bool kIs8Bit = false;
  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t j0, const Scales<S>& block_scales, SubBlock<S>& out) {
    const uint32_t j = j0 + kPart;
    out.scales[0] = block_scales.scales[j];
    out.min = block_scales.mins[j];
    const std::byte* const high = block + 256;
    const std::byte* const words = block + 768 + size_t{256} * j0;
    // Bit j of each byte becomes bit 4; what comes from other bytes is masked.
    const typename S::I turn = S::isplat(static_cast<int32_t>((4 - j) & 31));
    const typename S::I fifth = S::isplat(0x10101010);
    for (uint32_t i = 0; i < 8; ++i) {
      const typename S::I word = S::iload(words + 64 * i);
      const typename S::I low = kPart == 0 ? low_nibbles<S>(word) : high_nibbles<S>(word);
      const typename S::I bits = S::rotate_left_by(S::iload(high + 64 * i), turn);
      out.bytes[i] = S::ior(low, S::iand(bits, fifth));
    }
  }
};

struct Q6K {
  static constexpr uint32_t kPanelBlockBytes = 210 * kLanes;
  static constexpr uint32_t kSubBlocks = 8;
  static constexpr uint32_t kUnroll = 4;
  static constexpr bool kHasMin = false;
  static constexpr bool kTwoScales = true;
  static constexpr bool kIs8Bit = false;
  static constexpr int32_t kOffset = 32;
  static constexpr StartSlot kStart = StartSlot::minus_32_low;
  template <class S>
  using Scales = BlockScales<S, 16, 1>;

  template <class S>
  [[gnu::always_inline]] static void read_scales(const std::byte* block, Scales<S>& out) {
    const typename S::F d = S::load_half(block);
    for (uint32_t j = 0; j < 16; ++j) {
      out.scales[j] = S::mul(d, S::to_float(S::iload_s8(block + 32 + 16 * j)));
    }
  }

  // The two high bits of part kPart, moved above the low four.
  template <class S, uint32_t kPart>
  [[gnu::always_inline]] static typename S::I high_bits(typename S::I word) {
    if constexpr (kPart == 0) word = S::template shift_left<4>(word);
    if constexpr (kPart == 1) word = S::template shift_left<2>(word);
    if constexpr (kPart == 3) word = S::template shift_right<2>(word);
    return S::iand(word, S::isplat(0x30303030));
  }

  template <class S, Use kUse, uint32_t kPart>
  [[gnu::always_inline]] static void
  decode(const std::byte* block, uint32_t j0, const Scales<S>& block_scales, SubBlock<S>& out) {
    out.scales[0] = block_scales.scales[2 * (j0 + kPart)];
    out.scales[1] = block_scales.scales[2 * (j0 + kPart) + 1];
    const std::byte* const low_words = block + 288 + size_t{256} * j0 + 512 * (kPart % 2);
    const std::byte* const high_words = block + 2336 + size_t{128} * j0;
    for (uint32_t i = 0; i < 8; ++i) {
      const typename S::I word = S::iload(low_words + 64 * i);
      const typename S::I low = kPart < 2 ? low_nibbles<S>(word) : high_nibbles<S>(word);
      out.bytes[i] = S::ior(low, high_bits<S, kPart>(S::iload(high_words + 64 * i)));
    }
  }
};

}  // namespace
}  // namespace nightsweep::cpu
