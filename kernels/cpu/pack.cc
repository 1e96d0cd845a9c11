#include "kernels/cpu/pack.h"

#if defined(__SSE2__)
  #include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/cpu/layout.h"

namespace nightsweep::cpu {
namespace {

// A run of units in the file's block. Fields are listed in their order in the panel.
struct Field {
  uint32_t file_offset = 0;
  uint32_t unit_bytes = 0;
  uint32_t n_units = 0;
  bool transpose_bits = false;
};

constexpr Field kF32[] = {{0, 4, 1}};
constexpr Field kF16[] = {{0, 2, 1}};
constexpr Field kQ40[] = {{0, 2, 1}, {2, 4, 4}};
constexpr Field kQ41[] = {{0, 2, 1}, {2, 2, 1}, {4, 4, 4}};
constexpr Field kQ50[] = {{0, 2, 1}, {2, 4, 1, true}, {6, 4, 4}};
constexpr Field kQ51[] = {{0, 2, 1}, {2, 2, 1}, {4, 4, 1, true}, {8, 4, 4}};
constexpr Field kQ80[] = {{0, 2, 1}, {2, 4, 8}};
constexpr Field kQ4K[] = {{0, 2, 1}, {2, 2, 1}, {4, 1, 12}, {16, 4, 32}};
constexpr Field kQ5K[] = {{0, 2, 1}, {2, 2, 1}, {4, 1, 12}, {16, 4, 8}, {48, 4, 32}};
constexpr Field kQ6K[] = {{208, 2, 1}, {192, 1, 16}, {0, 4, 32}, {128, 4, 16}};

std::span<const Field> fields_of(QuantType type) {
  switch (type) {
    case QuantType::f32:
      return kF32;
    case QuantType::f16:
    case QuantType::bf16:
      return kF16;
    case QuantType::q4_0:
      return kQ40;
    case QuantType::q4_1:
      return kQ41;
    case QuantType::q5_0:
      return kQ50;
    case QuantType::q5_1:
      return kQ51;
    case QuantType::q8_0:
      return kQ80;
    case QuantType::q4_k:
      return kQ4K;
    case QuantType::q5_k:
      return kQ5K;
    case QuantType::q6_k:
      return kQ6K;
  }
  return {};
}

// The fifth bits of Q5_0 and Q5_1: file bit 4i + b <-> panel bit 8b + i, so that the bits of four
// consecutive elements stand at one place of the four bytes.
uint32_t bits_to_panel(uint32_t file_bits) {
  uint32_t panel_bits = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t nibble = file_bits >> (4 * i) & 15;
    panel_bits |= (nibble * 0x00204081U & 0x01010101U) << i;  // bit b to the low end of byte b
  }
  return panel_bits;
}

uint32_t bits_to_file(uint32_t panel_bits) {
  uint32_t file_bits = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t low_ends = panel_bits >> i & 0x01010101U;
    file_bits |= (low_ends * 0x01020408U >> 24 & 15) << (4 * i);
  }
  return file_bits;
}

template <typename Unit>
std::byte* pack_units(
    const std::byte* const* blocks,  // (16)
    uint32_t n_units,
    std::byte* panel) {
  for (uint32_t unit = 0; unit < n_units; ++unit) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(panel + lane * sizeof(Unit), blocks[lane] + unit * sizeof(Unit), sizeof(Unit));
    }
    panel += kLanes * sizeof(Unit);
  }
  return panel;
}

// Up to 16 bytes of each lane, transposed as a whole: one instruction a step in place of one a
// byte. REQUIRES: 16 bytes may be read at each of the blocks, whatever n_units is.
std::byte* pack_bytes(
    const std::byte* const* blocks,  // (16)
    uint32_t n_units,
    std::byte* panel) {
#if defined(__SSE2__)
  // Four rounds of interleaving lane l with lane l + 8 bring byte u of every lane into row u.
  __m128i rows[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    rows[lane] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks[lane]));
  for (uint32_t round = 0; round < 4; ++round) {
    __m128i mixed[kLanes];
    for (uint32_t i = 0; i < kLanes / 2; ++i) {
      mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + kLanes / 2]);
      mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + kLanes / 2]);
    }
    std::copy(mixed, mixed + kLanes, rows);
  }
  for (uint32_t unit = 0; unit < n_units; ++unit)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(panel + size_t{unit} * kLanes), rows[unit]);
  return panel + size_t{n_units} * kLanes;
#else
  return pack_units<uint8_t>(blocks, n_units, panel);
#endif
}

// Four words of four lanes at a time: twice as fast as word by word, which counts when weights
// are packed as they stream by.
std::byte* pack_words(
    const std::byte** blocks,  // (16), moved on
    uint32_t n_words,
    std::byte* panel) {
#if defined(__SSE2__)
  for (; n_words >= 4; n_words -= 4) {
    for (uint32_t lane = 0; lane < kLanes; lane += 4) {
      const auto load = [&](uint32_t l) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks[lane + l]));
      };
      const __m128i ab_low = _mm_unpacklo_epi32(load(0), load(1));
      const __m128i cd_low = _mm_unpacklo_epi32(load(2), load(3));
      const __m128i ab_high = _mm_unpackhi_epi32(load(0), load(1));
      const __m128i cd_high = _mm_unpackhi_epi32(load(2), load(3));
      const auto store = [&](uint32_t word, __m128i lanes) {
        std::byte* const to = panel + (size_t{word} * kLanes + lane) * sizeof(uint32_t);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lanes);
      };
      store(0, _mm_unpacklo_epi64(ab_low, cd_low));
      store(1, _mm_unpackhi_epi64(ab_low, cd_low));
      store(2, _mm_unpacklo_epi64(ab_high, cd_high));
      store(3, _mm_unpackhi_epi64(ab_high, cd_high));
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      blocks[lane] += 4 * sizeof(uint32_t);
    panel += 4 * kLanes * sizeof(uint32_t);
  }
#endif
  return pack_units<uint32_t>(blocks, n_words, panel);
}

std::byte* pack_bits(const std::byte* const* blocks, std::byte* panel) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t bits = 0;
    std::memcpy(&bits, blocks[lane], sizeof bits);
    bits = bits_to_panel(bits);
    std::memcpy(panel + lane * sizeof bits, &bits, sizeof bits);
  }
  return panel + kLanes * sizeof(uint32_t);
}

std::byte* pack_field(const Field& field, const std::byte* const* rows, std::byte* panel) {
  const std::byte* blocks[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    blocks[lane] = rows[lane] + field.file_offset;
  if (field.transpose_bits) return pack_bits(blocks, panel);
  switch (field.unit_bytes) {
    case 1:
      return pack_bytes(blocks, field.n_units, panel);
    case 2:
      return pack_units<uint16_t>(blocks, field.n_units, panel);
    default:
      return pack_words(blocks, field.n_units, panel);
  }
}

constexpr std::byte kZeroBlock[256] = {};

}  // namespace

size_t panel_bytes(QuantType type, uint32_t n_cols) {
  return kLanes * quant_bytes(type, n_cols);
}

void pack_panel(
    QuantType type,
    const std::byte* rows,
    uint32_t n_rows,
    uint32_t n_cols,
    std::byte* panel) {
  const QuantTraits& traits = quant_traits(type);
  const size_t row_bytes = quant_bytes(type, n_cols);
  const std::span<const Field> fields = fields_of(type);
  const std::byte* blocks[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    blocks[lane] = lane < n_rows ? rows + lane * row_bytes : kZeroBlock;
  }
  for (uint32_t block = 0; block < n_cols / traits.block_elems; ++block) {
    for (const Field& field : fields)
      panel = pack_field(field, blocks, panel);
    for (uint32_t lane = 0; lane < n_rows; ++lane)
      blocks[lane] += traits.block_bytes;
  }
}

void unpack_row(
    QuantType type,
    const std::byte* panel,
    uint32_t lane,
    uint32_t n_cols,
    std::byte* row) {
  const QuantTraits& traits = quant_traits(type);
  for (uint32_t block = 0; block < n_cols / traits.block_elems; ++block) {
    for (const Field& field : fields_of(type)) {
      for (uint32_t unit = 0; unit < field.n_units; ++unit) {
        std::byte* const to = row + field.file_offset + unit * field.unit_bytes;
        std::memcpy(to, panel + lane * field.unit_bytes, field.unit_bytes);
        if (field.transpose_bits) {
          uint32_t bits = 0;
          std::memcpy(&bits, to, sizeof bits);
          bits = bits_to_file(bits);
          std::memcpy(to, &bits, sizeof bits);
        }
        panel += size_t{kLanes} * field.unit_bytes;
      }
    }
    row += traits.block_bytes;
  }
}

}  // namespace nightsweep::cpu
