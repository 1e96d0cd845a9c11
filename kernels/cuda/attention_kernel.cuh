// The attention kernel; see attention.h for the chain.
//
// A warp works on a tile of 16 queries. A page's keys are in shared memory as half, scores come
// from mma.m16n8k16 (A: queries, B: keys), stay in registers as the A operand of the product with
// the values. One buffer for keys and one for values: the next keys are copied while the values are
// multiplied, and the other way round. q8_0 is copied raw and widened in shared memory.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/softmax.cuh"

namespace nightsweep::cuda {

namespace {

template <uint32_t kDim, KvType kType, AttentionMode kMode>
struct Config {
  static constexpr bool kIsRounded = kType == KvType::q8_0;
  static constexpr bool kOneTile = kMode == AttentionMode::one_tile;
  // Two warps share one tile where its values would fill the registers of one, and where widening
  // q8_0 would keep one from anything else.
  static constexpr bool kIsShared = kDim > 128 || (kIsRounded && kDim % 32 == 0);
  static constexpr uint32_t kWarps = kOneTile ? (kIsShared ? 2 : 1) : 4;
  static constexpr uint32_t kThreads = 32 * kWarps;
  // Blocks on a multiprocessor that registers must allow, where shared memory does.
  static constexpr uint32_t kMinBlocks =
      kOneTile && kIsRounded && kWarps == 2 && kDim <= 128 ? 6 : 1;
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
  static constexpr uint32_t kRawBytes = kKvPageTokens * (kDim + 2 * kBlocks);
  // f16: keys, values. q8_0: one tile in half, raw keys, raw values.
  static constexpr uint32_t kSharedBytes = kIsRounded ? kTileBytes + 2 * kRawBytes : 2 * kTileBytes;
  // Queries pass through the space of the values (f16) or of the tile (q8_0).
  static_assert(kTiles * kTileQueries <= kKvPageTokens);
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
    const uint32_t offset = C::kIsRounded ? i * 16 : token * C::kStride * 2 + piece * 16;
    copy_async_16(to + offset, rows + size_t{i} * 16, token < n_tokens);
  }
  if constexpr (C::kIsRounded) {
    constexpr uint32_t kScalePieces = kKvPageTokens * C::kBlocks * 2 / 16;
    constexpr uint32_t kRowBytes = kKvPageTokens * (C::kStride - 8);
    for (uint32_t i = threadIdx.x; i < kScalePieces; i += C::kThreads)
      copy_async_16(to + kRowBytes + i * 16, scales + size_t{i} * 16, true);
  }
}

// Raw q8_0 of a page to halves; tokens from n_tokens on become zero, whatever their scales hold.
template <class C>
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
      // 1024 + (byte ^ 0x80) as half, less 1152: the signed byte, exactly.
      const uint32_t turned = words[w] ^ 0x80808080U;
      const uint32_t pairs[2] = {
          __byte_perm(turned, 0x64646464U, 0x4140), __byte_perm(turned, 0x64646464U, 0x4342)};
#pragma unroll
      for (uint32_t p = 0; p < 2; ++p) {
        const __half2 value =
            __hsub2(*reinterpret_cast<const __half2*>(&pairs[p]), __float2half2_rn(1152.0F));
        const __half2 scaled = __hmul2(value, scale);
        halves[2 * w + p] = *reinterpret_cast<const uint32_t*>(&scaled);
      }
    }
    auto* const to = reinterpret_cast<uint4*>(tile + token * C::kStride + piece * 16);
    // Eight lanes write 16 bytes in every other place of 256: half of them the second place first,
    // so that together they meet each bank once.
    const uint4 low = make_uint4(halves[0], halves[1], halves[2], halves[3]);
    const uint4 high = make_uint4(halves[4], halves[5], halves[6], halves[7]);
    const uint32_t turn = i / 4 % 2;
    to[turn] = turn == 0 ? low : high;
    to[1 - turn] = turn == 0 ? high : low;
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
  load_matrices(to, tile + (lane % 16) * C::kStride + step * 16 + lane / 16 * 8);
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

template <uint32_t kDim, KvType kType, AttentionMode kMode>
__global__ void __launch_bounds__(
    Config<kDim, kType, kMode>::kThreads,
    Config<kDim, kType, kMode>::kMinBlocks) attention_kernel(const AttentionArgs args) {
  using C = Config<kDim, kType, kMode>;
  constexpr bool kSums = kMode == AttentionMode::block_sum;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float factors[C::kTiles * kTileQueries];

  // Items and page tables were copied before the first kernel that uses them started.
  const AttentionItem item = args.items[blockIdx.x];
  const uint32_t kv_head = blockIdx.y;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t tile = warp / C::kShares;
  const uint32_t share = warp % C::kShares;
  constexpr KvHeadLayout kLayout = kv_head_layout(kType, kDim);

  // Tokens that some query of the block may see.
  const uint32_t last_position =
      item.first_position + (item.first_query + item.n_queries - 1) / args.group;
  const uint32_t first_page = item.first_split * kSplitPages;
  const uint32_t end_page =
      min((item.first_split + item.n_splits) * kSplitPages, last_position / kKvPageTokens + 1);
  const uint32_t* const table = args.page_table + item.table;
  const std::byte* const heads = args.pages + size_t{kv_head} * kLayout.size_bytes;

  auto* const key_space = shared + (C::kIsRounded ? C::kTileBytes : 0);
  auto* const value_space = key_space + (C::kIsRounded ? C::kRawBytes : C::kTileBytes);
  auto* const key_tile = reinterpret_cast<__half*>(shared);
  auto* const value_tile = reinterpret_cast<__half*>(C::kIsRounded ? shared : value_space);
  auto* const query_tiles =
      C::kHoldsQueries ? value_tile : reinterpret_cast<__half*>(shared + C::kSharedBytes);

  wait_for_earlier();
  let_next_start();

  const auto tokens_of = [&](uint32_t page) { return last_position + 1 - page * kKvPageTokens; };
  const auto copy_keys = [&](uint32_t page) {
    if (page < end_page) {
      const std::byte* const head = heads + size_t{table[page]} * args.page_bytes;
      copy_page<C>(head, head + kLayout.key_scales, key_space, tokens_of(page), kType);
    }
    commit_copies();
  };
  const auto copy_values = [&](uint32_t page) {
    if (page < end_page) {
      const std::byte* const head = heads + size_t{table[page]} * args.page_bytes;
      copy_page<C>(
          head + kLayout.values, head + kLayout.value_scales, value_space, tokens_of(page), kType);
    }
    commit_copies();
  };

  copy_keys(first_page);
  if (share == 0) {
    load_queries<C>(
        args, item, tile * kTileQueries, kv_head, query_tiles + tile * kTileQueries * C::kStride,
        factors + tile * kTileQueries);
  }
  block_barrier<C::kWarps>();
  const __half* const query_tile = query_tiles + tile * kTileQueries * C::kStride;
  uint32_t held[C::kHoldsQueries ? C::kSteps : 1][4];
  if constexpr (C::kHoldsQueries) {
#pragma unroll
    for (uint32_t step = 0; step < C::kSteps; ++step)
      load_query_step<C>(query_tile, step, held[step]);
    block_barrier<C::kWarps>();
  }
  copy_values(first_page);

  // Lane 4 g + t has the queries g and g + 8 of its tile.
  const uint32_t query[2] = {tile * kTileQueries + lane / 4, tile * kTileQueries + lane / 4 + 8};
  uint32_t position[2];
  float factor[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    position[i] = item.first_position + (item.first_query + query[i]) / args.group;
    factor[i] = factors[query[i]];
  }

  Softmax<C::kOutTiles> split;
  Softmax<kSums ? C::kOutTiles : 1> total;
  split.clear();
  total.clear();

  const auto row_of = [&](uint32_t i) {
    return item.first_row + (item.first_query + query[i]) / args.group;
  };
  const auto head_of = [&](uint32_t i) {
    return kv_head * args.group + (item.first_query + query[i]) % args.group;
  };
  const uint32_t first_element = share * C::kShareDim;

  for (uint32_t page = first_page; page < end_page; ++page) {
    const uint32_t n_tokens = tokens_of(page);
    wait_copies<1>();
    block_barrier<C::kWarps>();
    if constexpr (C::kIsRounded) {
      widen_page<C>(key_space, key_tile, n_tokens);
      block_barrier<C::kWarps>();
      copy_keys(page + 1);
    }
    float scores[8][4];
    score_page<C>(key_tile, held, query_tile, scores);
    if constexpr (!C::kIsRounded) {
      block_barrier<C::kWarps>();
      copy_keys(page + 1);
    }

    uint32_t weights[4][4];
    split.add_scores(scores, factor, position, page * kKvPageTokens, weights);

    wait_copies<1>();
    block_barrier<C::kWarps>();
    if constexpr (C::kIsRounded) {
      widen_page<C>(value_space, value_tile, n_tokens);
      block_barrier<C::kWarps>();
      copy_values(page + 1);
    }
    add_page<C>(value_tile, weights, first_element, split.values);
    if constexpr (!C::kIsRounded) {
      block_barrier<C::kWarps>();
      copy_values(page + 1);
    }

    const bool ends_split = page % kSplitPages == kSplitPages - 1 || page + 1 == end_page;
    if (!ends_split) continue;
    split.finish_sums();
    if constexpr (kSums) {
      total.merge(split);
      split.clear();
    } else if (item.is_partial != 0) {
      const uint32_t number = page / kSplitPages;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        if (query[i] >= item.n_queries || number >= split_count(position[i])) continue;
        const size_t entry = size_t{args.workspace_rows[row_of(i)]} +
                             size_t{head_of(i)} * split_count(position[i]) + number;
        float* const to = args.split_values + entry * kDim + first_element;
#pragma unroll
        for (uint32_t n = 0; n < C::kOutTiles; ++n) {
          *reinterpret_cast<float2*>(to + 8 * n + lane % 4 * 2) =
              make_float2(split.values[n][2 * i], split.values[n][2 * i + 1]);
        }
        if (share == 0 && lane % 4 == 0) {
          args.split_sums[entry] = make_float2(split.largest[i], split.sum[i]);
        }
      }
      split.clear();
    }
  }
  wait_copies<0>();
  if (!kSums && item.is_partial != 0) return;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    if (query[i] >= item.n_queries) continue;
    float* const to = args.out + (size_t{row_of(i)} * args.n_heads + head_of(i)) * args.head_dim;
    const float sum = kSums ? total.sum[i] : split.sum[i];
#pragma unroll
    for (uint32_t n = 0; n < C::kOutTiles; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t element = first_element + 8 * n + lane % 4 * 2 + e;
        const float value =
            kSums ? total.values[kSums ? n : 0][2 * i + e] : split.values[n][2 * i + e];
        if (element < args.head_dim) to[element] = value / sum;
      }
    }
  }
}

template <uint32_t kDim, KvType kType, AttentionMode kMode>
void start(uint32_t n_items, uint32_t n_kv_heads, const AttentionArgs& args, cudaStream_t stream) {
  using C = Config<kDim, kType, kMode>;
  constexpr size_t kBytes = C::kSharedBytes + C::kQueryBytes;
  const auto kernel = attention_kernel<kDim, kType, kMode>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  check(allowed, "shared memory of the attention kernel");
  launch(
      "attention", kernel,
      {.grid = {n_items, n_kv_heads}, .threads = C::kThreads, .shared_bytes = kBytes}, stream,
      args);
}

template <uint32_t kDim, KvType kType>
void start_mode(
    AttentionMode mode,
    uint32_t n_items,
    uint32_t n_kv_heads,
    const AttentionArgs& args,
    cudaStream_t stream) {
  switch (mode) {
    case AttentionMode::one_tile:
      return start<kDim, kType, AttentionMode::one_tile>(n_items, n_kv_heads, args, stream);
    case AttentionMode::block:
      return start<kDim, kType, AttentionMode::block>(n_items, n_kv_heads, args, stream);
    case AttentionMode::block_sum:
      return start<kDim, kType, AttentionMode::block_sum>(n_items, n_kv_heads, args, stream);
  }
}

}  // namespace

template <uint32_t kDim>
void launch_attention(
    AttentionMode mode,
    KvType type,
    uint32_t n_items,
    uint32_t n_kv_heads,
    const AttentionArgs& args,
    cudaStream_t stream) {
  if (type == KvType::q8_0) {
    start_mode<kDim, KvType::q8_0>(mode, n_items, n_kv_heads, args, stream);
  } else {
    start_mode<kDim, KvType::f16>(mode, n_items, n_kv_heads, args, stream);
  }
}

}  // namespace nightsweep::cuda
