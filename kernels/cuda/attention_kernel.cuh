// The attention kernel; see attention.h for the chain.
//
// A warp works on a tile of 16 queries. A page's keys are in shared memory as half, scores come
// from mma.m16n8k16 (A: queries, B: keys), stay in registers as the A operand of the product with
// the values. One buffer for keys and one for values: the next keys are copied while the values are
// multiplied, and the other way round.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_output.cuh"
#include "kernels/cuda/attention_page.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/softmax.cuh"

namespace nightsweep::cuda {

namespace {

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

  constexpr bool kWidens = C::kIsRounded && !C::kReadsRaw;  // in shared memory
  auto* const key_space = shared + (kWidens ? C::kTileBytes : 0);
  auto* const value_space = key_space + (C::kIsRounded ? C::kRawBytes : C::kTileBytes);
  auto* const key_tile = reinterpret_cast<__half*>(shared);
  auto* const value_tile = reinterpret_cast<__half*>(kWidens ? shared : value_space);
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
    if constexpr (kWidens) {
      widen_page<C, true>(key_space, key_tile, n_tokens);
      block_barrier<C::kWarps>();
      copy_keys(page + 1);
    }
    float scores[8][4];
    if constexpr (C::kReadsRaw) {
      score_raw_page<C>(key_space, held, scores);
    } else {
      score_page<C>(key_tile, held, query_tile, scores);
    }
    if constexpr (!kWidens) {
      block_barrier<C::kWarps>();
      copy_keys(page + 1);
    }

    uint32_t weights[4][4];
    split.add_scores(scores, factor, position, page * kKvPageTokens, weights);

    wait_copies<1>();
    block_barrier<C::kWarps>();
    if constexpr (kWidens) {
      widen_page<C, false>(value_space, value_tile, n_tokens);
      block_barrier<C::kWarps>();
      copy_values(page + 1);
    }
    if constexpr (C::kReadsRaw) {
      add_raw_page<C>(value_space, weights, n_tokens, split.values);
    } else {
      add_page<C>(value_tile, weights, first_element, split.values);
    }
    if constexpr (!kWidens) {
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
        if constexpr (C::kReadsRaw) {
#pragma unroll
          for (uint32_t n = 0; n < C::kOutTiles; n += 2) {
            *reinterpret_cast<float4*>(to + element_of<C>(n, 0)) = make_float4(
                split.values[n][2 * i], split.values[n + 1][2 * i], split.values[n][2 * i + 1],
                split.values[n + 1][2 * i + 1]);
          }
        } else {
#pragma unroll
          for (uint32_t n = 0; n < C::kOutTiles; ++n) {
            *reinterpret_cast<float2*>(to + element_of<C>(n, 0)) =
                make_float2(split.values[n][2 * i], split.values[n][2 * i + 1]);
          }
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

  // By way of shared memory, where pages are no longer read: each warp its part of a tile.
  block_barrier<C::kWarps>();
  __half* const staged =
      reinterpret_cast<__half*>(shared) + tile * kTileQueries * C::kStride + first_element;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    __half* const to = staged + (lane / 4 + 8 * i) * C::kStride;
    const float inverse = 1.0F / (kSums ? total.sum[i] : split.sum[i]);
    const auto value = [&](uint32_t n, uint32_t e) {
      return (kSums ? total.values[kSums ? n : 0] : split.values[n])[2 * i + e] * inverse;
    };
#pragma unroll
    for (uint32_t n = 0; n < C::kOutTiles; ++n) {
      // Of raw pages neighbours stand in two products.
      const uint32_t first = C::kReadsRaw ? n / 2 * 2 : n;
      const uint32_t e = C::kReadsRaw ? n % 2 : 0;
      *reinterpret_cast<uint32_t*>(to + element_of<C>(first, e)) =
          C::kReadsRaw ? output_pair(value(first, e), value(first + 1, e))
                       : output_pair(value(n, 0), value(n, 1));
    }
  }
  __syncwarp();
  const uint32_t own = tile * kTileQueries + lane % 16;
  if (own >= item.n_queries) return;
  const uint32_t row = item.first_row + (item.first_query + own) / args.group;
  const uint32_t head = kv_head * args.group + (item.first_query + own) % args.group;
  const HeadOutput to(args, row, head);
  to.put_elements(
      staged + lane % 16 * C::kStride, first_element, first_element + C::kShareDim, lane / 16);
  if (share == 0 && head == args.n_heads - 1) to.finish_row(args, row, lane / 16, 2);
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
