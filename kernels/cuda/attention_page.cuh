// What a warp does with a page of keys or values, for attention_kernel.cuh: copies, widening, and
// the two products.
//
// q8_0 is copied raw. A single tile widens the bytes in registers, each lane those of its part of
// the B operand; several tiles that share a page have it widened once, in shared memory. Sixteen
// columns of a product are the same ones in both: in slots 2t, 2t + 1, 2t + 8, 2t + 9 stand the
// elements 4t to 4t + 3, which a lane can read at once.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.cuh"

namespace nightsweep::cuda {

namespace {

template <uint32_t kDim, KvType kType, AttentionMode kMode>
struct Config {
  static constexpr bool kIsRounded = kType == KvType::q8_0;
  static constexpr bool kOneTile = kMode == AttentionMode::one_tile;
  // Two warps share one tile where its values would fill the registers of one.
  static constexpr bool kIsShared = kDim > 128;
  static constexpr bool kReadsRaw = kIsRounded && kOneTile && !kIsShared;
  static constexpr uint32_t kWarps = kOneTile ? (kIsShared ? 2 : 1) : 4;
  static constexpr uint32_t kThreads = 32 * kWarps;
  // Of f16 the compiler takes more registers, and a short context 0.9 us less, if it is told one;
  // 0: nothing.
  static constexpr uint32_t kMinBlocks = kIsRounded ? 0 : 1;
  static constexpr uint32_t kTiles = kOneTile ? 1 : tiles_per_block(kDim);
  // Warps that share a tile have a part of the elements each, and all its scores.
  static constexpr uint32_t kShares = kWarps / kTiles;
  static constexpr uint32_t kShareDim = kDim / kShares;
  static constexpr uint32_t kSteps = kDim / 16;  // along a head
  static constexpr uint32_t kOutTiles = kShareDim / 8;
  // Rows of a tile in shared memory: no two of eight consecutive ones share a bank.
  static constexpr uint32_t kStride = kDim + 8;  // halves
  static constexpr uint32_t kTileBytes = kKvPageTokens * kStride * 2;
  static constexpr uint32_t kBlocks = (kDim + kKvBlock - 1) / kKvBlock;
  // Raw rows that are read as operands: an odd number of 16 bytes apart, for the same reason.
  static constexpr uint32_t kRawStride = kReadsRaw && kDim / 16 % 2 == 0 ? kDim + 16 : kDim;
  static constexpr uint32_t kRawBytes = kKvPageTokens * (kRawStride + 2 * kBlocks);
  // f16: keys, values. q8_0: a tile in half where it is widened there, raw keys, raw values.
  static constexpr uint32_t kSharedBytes = kReadsRaw    ? 2 * kRawBytes
                                           : kIsRounded ? kTileBytes + 2 * kRawBytes
                                                        : 2 * kTileBytes;
  // Queries pass through the space of the values (f16, raw) or of the tile (q8_0).
  static_assert(kTiles * kTileQueries <= kKvPageTokens);
  static_assert(!kReadsRaw || kTileQueries * kStride * 2 <= kRawBytes);
  static constexpr bool kHoldsQueries = kDim <= 128;  // in registers
  static constexpr uint32_t kQueryBytes = kHoldsQueries ? 0 : kTiles * kTileQueries * kStride * 2;
};

template <uint32_t kWarps>
__device__ void block_barrier() {
  if constexpr (kWarps == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// One page's keys or values, as they stand in memory.
template <class C>
__device__ void copy_page(
    const std::byte* rows,
    const std::byte* scales,
    std::byte* to,
    uint32_t n_tokens,
    KvType /*type*/) {
  constexpr uint32_t kRowPieces = C::kIsRounded ? (C::kStride - 8) / 16 : (C::kStride - 8) / 8;
  for (uint32_t i = threadIdx.x; i < kKvPageTokens * kRowPieces; i += C::kThreads) {
    const uint32_t token = i / kRowPieces;
    const uint32_t piece = i % kRowPieces;
    const uint32_t offset = token * (C::kIsRounded ? C::kRawStride : C::kStride * 2) + piece * 16;
    copy_async_16(to + offset, rows + size_t{i} * 16, token < n_tokens);
  }
  if constexpr (C::kIsRounded) {
    constexpr uint32_t kScalePieces = kKvPageTokens * C::kBlocks * 2 / 16;
    constexpr uint32_t kRowBytes = kKvPageTokens * C::kRawStride;
    for (uint32_t i = threadIdx.x; i < kScalePieces; i += C::kThreads)
      copy_async_16(to + kRowBytes + i * 16, scales + size_t{i} * 16, true);
  }
}

// Two bytes of `turned`, which are those of a page with the sign bit turned, to half, times scale:
// 1024 + (byte ^ 0x80) as half, less 1152, is the signed byte, exactly.
template <uint32_t kSelector>
__device__ uint32_t widened(uint32_t turned, __half2 scale) {
  const uint32_t pair = __byte_perm(turned, 0x64646464U, kSelector);
  const __half2 value =
      __hsub2(*reinterpret_cast<const __half2*>(&pair), __float2half2_rn(1152.0F));
  const __half2 scaled = __hmul2(value, scale);
  return *reinterpret_cast<const uint32_t*>(&scaled);
}
constexpr uint32_t kTurn = 0x80808080U;
constexpr uint32_t kBytes01 = 0x4140;
constexpr uint32_t kBytes23 = 0x4342;
constexpr uint32_t kBytes02 = 0x4240;
constexpr uint32_t kBytes13 = 0x4341;

// Raw q8_0 of a page to halves; tokens from n_tokens on become zero, whatever their scales hold.
// Of keys the elements stand in the order of a product's columns.
template <class C, bool kKeys>
__device__ void widen_page(const std::byte* raw, __half* tile, uint32_t n_tokens) {
  constexpr uint32_t kDim = C::kStride - 8;
  constexpr uint32_t kRowPieces = kDim / 16;
  const auto* const scales = reinterpret_cast<const __half*>(raw + kKvPageTokens * kDim);
  for (uint32_t i = threadIdx.x; i < kKvPageTokens * kRowPieces; i += C::kThreads) {
    const uint32_t token = i / kRowPieces;
    const uint32_t piece = i % kRowPieces;
    const uint4 bytes = *reinterpret_cast<const uint4*>(raw + i * 16);
    const __half one_scale =
        token < n_tokens ? scales[token * C::kBlocks + piece * 16 / kKvBlock] : __ushort_as_half(0);
    const __half2 scale = __half2half2(one_scale);
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    uint32_t halves[8];
#pragma unroll
    for (uint32_t w = 0; w < 4; ++w) {
      halves[kKeys ? w : 2 * w] = widened<kBytes01>(words[w] ^ kTurn, scale);
      halves[kKeys ? w + 4 : 2 * w + 1] = widened<kBytes23>(words[w] ^ kTurn, scale);
    }
    auto* const to = reinterpret_cast<uint4*>(tile + token * C::kStride + piece * 16);
    to[0] = make_uint4(halves[0], halves[1], halves[2], halves[3]);
    to[1] = make_uint4(halves[4], halves[5], halves[6], halves[7]);
  }
}

// Queries of a tile as half, each divided by a power of two near its largest element; factors[i]
// undoes that and holds the softmax scale.
template <class C>
__device__ void load_queries(
    const AttentionArgs& args,
    const AttentionItem& item,
    uint32_t first_query,
    uint32_t kv_head,
    __half* tile,
    float* factors) {
  constexpr uint32_t kDim = C::kStride - 8;
  constexpr uint32_t kPerLane = (kDim + 31) / 32;
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll 4
  for (uint32_t i = 0; i < kTileQueries; ++i) {
    const uint32_t query = first_query + i;
    if (query >= item.n_queries) {
#pragma unroll
      for (uint32_t j = 0; j < kPerLane; ++j) {
        if (32 * j + lane < kDim) tile[i * C::kStride + 32 * j + lane] = __ushort_as_half(0);
      }
      if (lane == 0) factors[i] = 0.0F;
      continue;
    }
    float values[kPerLane] = {};
    const uint32_t index = item.first_query + query;
    const float* const from = args.q + (size_t{item.first_row + index / args.group} * args.n_heads +
                                        kv_head * args.group + index % args.group) *
                                           args.head_dim;
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j) {
      if (32 * j + lane < args.head_dim) values[j] = from[32 * j + lane];
    }
    float largest = 0.0F;
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j)
      largest = fmaxf(largest, fabsf(values[j]));
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
    // A biased exponent within 1..253 has an exact inverse.
    const uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 1U), 253U);
    const float power = __uint_as_float(exponent << 23);
    const float inverse = __uint_as_float((254U - exponent) << 23);
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j) {
      if (32 * j + lane < kDim)
        tile[i * C::kStride + 32 * j + lane] = __float2half_rn(values[j] * inverse);
    }
    if (lane == 0) factors[i] = power * args.scale_log2;
  }
}

template <class C>
__device__ void load_query_step(const __half* tile, uint32_t step, uint32_t (&to)[4]) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (C::kIsRounded) {
    const __half* const at = tile + lane / 4 * C::kStride + step * 16 + lane % 4 * 4;
    const uint2 upper = *reinterpret_cast<const uint2*>(at);
    const uint2 lower = *reinterpret_cast<const uint2*>(at + 8 * C::kStride);
    to[0] = upper.x;
    to[1] = lower.x;
    to[2] = upper.y;
    to[3] = lower.y;
  } else {
    load_matrices(to, tile + (lane % 16) * C::kStride + step * 16 + lane / 16 * 8);
  }
}

// Both products of a page straight from raw q8_0.
template <class C>
__device__ void score_raw_page(
    const std::byte* raw,
    const uint32_t (&held)[C::kHoldsQueries ? C::kSteps : 1][4],
    float (&scores)[8][4]) {
  static_assert(C::kHoldsQueries);
  const uint32_t lane = threadIdx.x % 32;
  const std::byte* const row = raw + lane / 4 * C::kRawStride + lane % 4 * 4;
  const auto* const scales =
      reinterpret_cast<const __half*>(raw + kKvPageTokens * C::kRawStride) + lane / 4 * C::kBlocks;
#pragma unroll
  for (uint32_t n = 0; n < 8; ++n)
    scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0F;
#pragma unroll
  for (uint32_t block = 0; block < C::kBlocks; ++block) {
    __half2 scale[8];
#pragma unroll
    for (uint32_t n = 0; n < 8; ++n)
      scale[n] = __half2half2(scales[8 * n * C::kBlocks + block]);
#pragma unroll
    for (uint32_t step = 2 * block; step < 2 * block + 2 && step < C::kSteps; ++step) {
#pragma unroll
      for (uint32_t n = 0; n < 8; ++n) {
        const uint32_t turned =
            *reinterpret_cast<const uint32_t*>(row + 8 * n * C::kRawStride + step * 16) ^ kTurn;
        multiply_add(
            scores[n], held[step], widened<kBytes01>(turned, scale[n]),
            widened<kBytes23>(turned, scale[n]));
      }
    }
  }
}

// Pairs of bytes of a token's value are transposed as one; of 16 elements the even ones are columns
// of one product and the odd ones of the next.
template <class C>
__device__ void add_raw_page(
    const std::byte* raw,
    const uint32_t (&weights)[4][4],
    uint32_t n_tokens,
    float (&values)[C::kOutTiles][4]) {
  const uint32_t lane = threadIdx.x % 32;
  const std::byte* const row = raw + lane % 16 * C::kRawStride + lane / 16 * 16;
  const auto* const scales = reinterpret_cast<const __half*>(raw + kKvPageTokens * C::kRawStride);
#pragma unroll
  for (uint32_t step = 0; step < 4; ++step) {
    // Of tokens 2t and 2t + 1, and of 2t + 8 and 2t + 9; those never written may hold anything.
    __half2 scale[2][C::kBlocks];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t token = step * 16 + 8 * i + lane % 4 * 2;
      const __half* const at = scales + token * C::kBlocks;
#pragma unroll
      for (uint32_t block = 0; block < C::kBlocks; ++block) {
        const __half zero = __ushort_as_half(0);
        scale[i][block] = __halves2half2(
            token < n_tokens ? at[block] : zero,
            token + 1 < n_tokens ? at[C::kBlocks + block] : zero);
      }
    }
#pragma unroll
    for (uint32_t block = 0; block < C::kBlocks; ++block) {
      // A head of 80 has half a block at its end: what is read past it is used by nobody.
      uint32_t pairs[4];
      load_matrices_transposed(pairs, row + step * 16 * C::kRawStride + block * kKvBlock);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t n = 4 * block + 2 * half;
        if (n >= C::kOutTiles) continue;
        const uint32_t low = pairs[2 * half] ^ kTurn;
        const uint32_t high = pairs[2 * half + 1] ^ kTurn;
        multiply_add(
            values[n], weights[step], widened<kBytes02>(low, scale[0][block]),
            widened<kBytes02>(high, scale[1][block]));
        multiply_add(
            values[n + 1], weights[step], widened<kBytes13>(low, scale[0][block]),
            widened<kBytes13>(high, scale[1][block]));
      }
    }
  }
}

// Which element of a warp's share has value n, e (0 or 1) of a lane's query.
template <class C>
__device__ uint32_t element_of(uint32_t n, uint32_t e) {
  const uint32_t t = threadIdx.x % 4;
  return C::kReadsRaw ? n / 2 * 16 + 4 * t + 2 * e + n % 2 : 8 * n + 2 * t + e;
}

// Scores of a page for a tile: (16 queries, 64 tokens).
template <class C>
__device__ void score_page(
    const __half* keys,
    const uint32_t (&held)[C::kHoldsQueries ? C::kSteps : 1][4],
    const __half* query_tile,
    float (&scores)[8][4]) {
  const uint32_t lane = threadIdx.x % 32;
  const __half* const row = keys + (lane % 8 + lane / 16 * 8) * C::kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (uint32_t n = 0; n < 8; ++n)
    scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0F;
#pragma unroll
  for (uint32_t step = 0; step < C::kSteps; ++step) {
    uint32_t a[4];
    if constexpr (C::kHoldsQueries) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i)
        a[i] = held[step][i];
    } else {
      load_query_step<C>(query_tile, step, a);
    }
#pragma unroll
    for (uint32_t pair = 0; pair < 4; ++pair) {
      uint32_t b[4];
      load_matrices(b, row + pair * 16 * C::kStride + step * 16);
      multiply_add(scores[2 * pair], a, b[0], b[1]);
      multiply_add(scores[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// values += weights x page, for this warp's share of the elements.
template <class C>
__device__ void add_page(
    const __half* page,
    const uint32_t (&weights)[4][4],
    uint32_t first_element,
    float (&values)[C::kOutTiles][4]) {
  const uint32_t lane = threadIdx.x % 32;
  const __half* const row = page + (lane % 16) * C::kStride + first_element + lane / 16 * 8;
#pragma unroll
  for (uint32_t step = 0; step < 4; ++step) {
#pragma unroll
    for (uint32_t pair = 0; pair < C::kOutTiles / 2; ++pair) {
      uint32_t b[4];
      load_matrices_transposed(b, row + step * 16 * C::kStride + pair * 16);
      multiply_add(values[2 * pair], weights[step], b[0], b[1]);
      multiply_add(values[2 * pair + 1], weights[step], b[2], b[3]);
    }
  }
}

}  // namespace

}  // namespace nightsweep::cuda
