// PACKED WEIGHTS of the CUDA device. Compiled by the host's compiler and by nvcc.
//
// A matrix is panels of 16 rows (the last one padded with zeros). A panel is a header of 32 bytes
// (16 x int16: the row's exponent e) and then blocks along the inner dimension, of 256 columns for
// the K-quants and 64 for all others (padded with zeros). A block is
//     [scales of the block, K-quants only] [chunk of 64 columns] ...
// and a chunk is
//     [quants] [high bits] [scales of the chunk, types with blocks of 32 only].
// The bytes are the file's, in the order in which the tensor cores want them: lane l = 4 g + t of a
// warp holds, for step s (16 columns) of a chunk, the four pairs of the A operand of mma.m16n8k16,
//     pair p = (row g + 8 (p % 2), columns 16 s + 8 (p / 2) + 2 t and the next one).
//
//   4-bit part    [lane][step] one word: pair p has its first value in bits 4p, its second in 16 +
//   4p Q5 fifth bit  [lane] one word: of step s, pair 0 in bit 4 + s, 1 in 8 + s, 2 in 12 + s, 3 in
//   s;
//                 second values 16 bits higher
//   Q6 bits 4, 5  [lane][step / 2] one word: pair 0 at 4 + 2 (s % 2), 1 at 8 + .., 2 at 12 + .., 3
//   at .. Q8_0          [step / 2][lane][step % 2] two words: the bytes of pairs 0, 1 and 2, 3,
//   sign turned F16, BF16     [step][lane] four words: the pairs F32           [step][pair /
//   2][lane] four words: two pairs
//
//   scales Q4_0 Q5_0 Q8_0   [g] half d (row g, block 0), (g, 1), (g + 8, 0), (g + 8, 1)
//          Q4_1 Q5_1        [g] half d (g, 0), (g, 1), m (g, 0), (g, 1), then the same of row g + 8
//          Q4_K Q5_K        [row] half d, -dmin; three words, low half for the scales, high half
//          for
//                           the minima: word w has sub-block 2w in bits 0-5 and 2w + 1 in bits
//                           6-11; bits 12-15 of words 0, 1, 2: low four bits of sub-block 6, of 7,
//                           and the two high bits of 6, then of 7
//          Q6_K             [row][16] int8 scales, sign turned; then [g] half d (row g), (row g +
//          8)
//
// Scales of quantized types stand multiplied by a power of two a row, 2^(e + u), so that the
// row's largest scale fills half precision once u is in it: u = 24 undoes the reading of raw bits
// as subnormal numbers (bit 0 = 2^-24); u = 20 for rows g + 8, whose bits lie four higher (Q8_0: 24
// for all). m and dmin carry 2^(e + 10), so that scaling up is the rule. No bit is lost, except in
// a row that has scales (d s) above 2, where minima below 2^-14 times its largest scale may lose
// some. F16, BF16 and F32 stand as in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant.h"

namespace nightsweep::cuda {

inline constexpr uint32_t kPanel = 16;  // rows
inline constexpr uint32_t kChunk = 64;  // columns
inline constexpr uint32_t kPanelHeaderBytes = 32;
inline constexpr int kMinimumShift = 10;

struct PackedLayout {
  uint32_t quant_bytes;   // of a chunk
  uint32_t high_bytes;    // of a chunk
  uint32_t scale_bytes;   // of a chunk, or of a block when block_chunks is 4
  uint32_t block_chunks;  // 1 or 4

  constexpr uint32_t chunk_bytes() const {
    return quant_bytes + high_bytes + (block_chunks == 1 ? scale_bytes : 0);
  }
  constexpr uint32_t block_header_bytes() const { return block_chunks == 1 ? 0 : scale_bytes; }
  constexpr uint32_t block_bytes() const {
    return block_header_bytes() + block_chunks * chunk_bytes();
  }
  // Of a chunk's first byte after the panel's header.
  constexpr size_t chunk_offset(uint32_t chunk) const {
    return size_t{chunk / block_chunks} * block_bytes() + block_header_bytes() +
           size_t{chunk % block_chunks} * chunk_bytes();
  }
  constexpr size_t panel_bytes(uint32_t n_chunks) const {
    return kPanelHeaderBytes + size_t{(n_chunks + block_chunks - 1) / block_chunks} * block_bytes();
  }
};

constexpr PackedLayout packed_layout(QuantType type) {
  switch (type) {
    case QuantType::q4_0:
      return {512, 0, 64, 1};
    case QuantType::q4_1:
      return {512, 0, 128, 1};
    case QuantType::q5_0:
      return {512, 128, 64, 1};
    case QuantType::q5_1:
      return {512, 128, 128, 1};
    case QuantType::q8_0:
      return {1024, 0, 64, 1};
    case QuantType::q4_k:
      return {512, 0, 256, 4};
    case QuantType::q5_k:
      return {512, 128, 256, 4};
    case QuantType::q6_k:
      return {512, 256, 288, 4};
    case QuantType::f32:
      return {4096, 0, 0, 1};
    case QuantType::f16:
    case QuantType::bf16:
      return {2048, 0, 0, 1};
  }
  return {};
}

constexpr uint32_t chunk_count(uint32_t n_cols) {
  return (n_cols + kChunk - 1) / kChunk;
}

// PREPARED INPUT: f16 in groups of 8 rows, [group][chunk of 64 columns][1024 bytes], in the order
// of the B operand: [half of 32 columns][lane 4 g + t][8 values]: row g, columns 2t, 2t + 1, 2t +
// 8, 2t + 9 of its first 16 columns, then of the second. For the wide tiles it is [tile of
// rows][chunk] [group of the tile][1024 bytes], the last tile with as many groups as it has, and
// the 1024 bytes are [row][place][8 values]: columns 8 p to 8 p + 7 at place p ^ row. Columns up to
// the end of the last chunk are zero. Rows up to the next multiple of kInputRowStep hold anything:
// rows never meet in a product. After it one float a row: what undoes the row's power of two.
inline constexpr uint32_t kInputChunkBytes = 1024;
inline constexpr uint32_t kInputRowStep = 8;

// A prepared input, for the kernels that write it.
struct InputPlace {
  uint8_t* values = nullptr;  // null: there is none
  float* scales = nullptr;    // (rows)
  uint32_t rows = 0;
  uint32_t n_chunks = 0;
  uint32_t tile_rows = 0;  // of the wide tile that it is for; 0: another one
};

// Where the columns of one row go.
struct InputRow {
  uint8_t* group;         // of 8 rows, its first chunk
  uint32_t chunk_stride;  // bytes
  uint32_t number;        // in the group
  bool is_wide;

  // Columns col, which is even, and col + 1: one word. The four words from a multiple of 8 on stand
  // beside each other for the wide tiles, and 16 bytes apart for the others.
  constexpr uint8_t* pair_at(uint32_t col) const {
    uint8_t* const chunk = group + size_t{col / kChunk} * chunk_stride;
    const uint32_t piece = col % kChunk / 8;
    const uint32_t word = col % 8 / 2;
    return is_wide ? chunk + 128 * number + 16 * (piece ^ number) + 4 * word
                   : chunk + 512 * (piece / 4) + 64 * number + 16 * word + 4 * (piece % 4);
  }
};

constexpr InputRow input_row(const InputPlace& place, uint32_t row) {
  InputRow to{
      place.values + size_t{row / 8} * place.n_chunks * kInputChunkBytes, kInputChunkBytes, row % 8,
      place.tile_rows != 0};
  if (to.is_wide) {
    const uint32_t tile_groups = place.tile_rows / 8;
    const uint32_t first = row / place.tile_rows * tile_groups;
    const uint32_t n_groups = (place.rows + 7) / 8 - first;
    to.group =
        place.values + (size_t{first} * place.n_chunks + (row / 8 - first)) * kInputChunkBytes;
    to.chunk_stride = (n_groups < tile_groups ? n_groups : tile_groups) * kInputChunkBytes;
  }
  return to;
}

#ifdef __CUDACC__
// Columns col, a multiple of 8, to col + 7.
__device__ __forceinline__ void put_piece(const InputRow& to, uint32_t col, const uint4& words) {
  uint8_t* const at = to.pair_at(col);
  if (to.is_wide) {
    *reinterpret_cast<uint4*>(at) = words;
  } else {
    *reinterpret_cast<uint32_t*>(at) = words.x;
    *reinterpret_cast<uint32_t*>(at + 16) = words.y;
    *reinterpret_cast<uint32_t*>(at + 32) = words.z;
    *reinterpret_cast<uint32_t*>(at + 48) = words.w;
  }
}
#endif

// THE CHAIN. An output is ((P0 + P1) + P2) + P3 in float32, where P_s is one chain of tensor-core
// products over the columns of split s, 16 at a time in rising order. Splits are cut at multiples
// of 256 columns and depend on the number of columns alone.
inline constexpr uint32_t kSplits = 4;

// First chunk of split s, s = 0..kSplits.
constexpr uint32_t split_begin(uint32_t n_chunks, uint32_t split) {
  const uint32_t first = (n_chunks + 3) / 4 * split / kSplits * 4;
  return first < n_chunks ? first : n_chunks;
}

}  // namespace nightsweep::cuda
