// Causal attention of some query heads over the pages of one KV head, with a running softmax.
//
// Page by page in order of position, for each query (lane = token, then lane = dimension):
//   score_t = sum over d, in order, of q_d k_td       (q8_0: over the blocks of 32, each in order)
//   m' = max(m, scores);  c = exp(m - m');  p_t = exp(score_t - m');  l' = l c + sum of p
//   acc = acc c, then + p_t v_t for the page's tokens in order
// Nothing here depends on which queries are worked on together, and tokens after the query's own
// are never touched, so a chunk of a prompt gives the bits that single rows give.
#pragma once

#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vector_math.h"

namespace nightsweep::cpu {
namespace {

inline constexpr uint32_t kTokenGroups = kKvPageTokens / kLanes;

template <class S, KvType kType>
[[gnu::always_inline]] inline typename S::F load_kv(const std::byte* at) {
  if constexpr (kType == KvType::f32) return S::from_bits(S::iload(at));
  if constexpr (kType == KvType::f16) return S::load_half(at);
  if constexpr (kType == KvType::q8_0) return S::to_float(S::iload_s8(at));
}

template <KvType kType>
constexpr size_t kKvBytes = kType == KvType::f32   ? 4
                            : kType == KvType::f16 ? 2
                                                   : 1;

// What the queries of a task carry from page to page.
struct Queries {
  float* q;            // (head_dim, kMaxQueries), scaled
  float* values;       // (kMaxQueries, padded_dim)
  float* scores;       // (kMaxQueries, 64)
  float* scaled;       // (kMaxQueries, 64), times the scales of a block of values
  float* maxima;       // (kMaxQueries)
  float* sums;         // (kMaxQueries)
  float* corrections;  // (kMaxQueries)
};

template <class S, KvType kType, uint32_t kQueries>
[[gnu::always_inline]] inline void score_queries(
    const KvHeadLayout& layout,
    const std::byte* head,
    const Queries& queries,
    uint32_t first,
    uint32_t n_tokens) {
  for (uint32_t group = 0; group * kLanes < n_tokens; ++group) {
    const std::byte* key =
        head + layout.keys + size_t{group} * layout.head_dim * kLanes * kKvBytes<kType>;
    const float* q = queries.q + first;
    typename S::F totals[kQueries];
    for (uint32_t i = 0; i < kQueries; ++i)
      totals[i] = S::zero();
    if constexpr (kType == KvType::q8_0) {
      const std::byte* scales = head + layout.key_scales + size_t{2} * kLanes * group;
      for (uint32_t d = 0; d < layout.head_dim; d += kSubBlock) {
        const uint32_t left = layout.head_dim - d;
        const uint32_t n = left < kSubBlock ? left : kSubBlock;
        typename S::F parts[kQueries];
        for (uint32_t i = 0; i < kQueries; ++i)
          parts[i] = S::zero();
        for (uint32_t k = 0; k < n; ++k) {
          const auto value = load_kv<S, kType>(key);
          for (uint32_t i = 0; i < kQueries; ++i) {
            parts[i] = S::fma(value, S::splat(q[i]), parts[i]);
          }
          key += kLanes;
          q += kMaxQueries;
        }
        const auto scale = S::load_half(scales);
        for (uint32_t i = 0; i < kQueries; ++i)
          totals[i] = S::fma(parts[i], scale, totals[i]);
        scales += size_t{2} * kKvPageTokens;
      }
    } else {
      for (uint32_t d = 0; d < layout.head_dim; ++d) {
        const auto value = load_kv<S, kType>(key);
        for (uint32_t i = 0; i < kQueries; ++i) {
          totals[i] = S::fma(value, S::splat(q[i]), totals[i]);
        }
        key += kLanes * kKvBytes<kType>;
        q += kMaxQueries;
      }
    }
    for (uint32_t i = 0; i < kQueries; ++i) {
      S::store(queries.scores + (first + i) * kKvPageTokens + group * kLanes, totals[i]);
    }
  }
}

// Scores of the first n tokens become weights exp(score - maximum); those of the others 0.
template <class S>
[[gnu::always_inline]] inline void
softmax_step(const Queries& queries, uint32_t query, uint32_t n_tokens) {
  float* const scores = queries.scores + query * kKvPageTokens;
  const auto nothing = S::splat(-__builtin_inff());
  typename S::F groups[kTokenGroups];
  for (uint32_t g = 0; g < kTokenGroups; ++g) {
    const uint32_t n = n_tokens > g * kLanes ? n_tokens - g * kLanes : 0;
    groups[g] = n == 0 ? nothing : S::first_lanes(n, S::load(scores + g * kLanes), nothing);
  }
  const float page_max =
      max_of_lanes<S>(S::max(S::max(groups[0], groups[1]), S::max(groups[2], groups[3])));
  const float old_max = queries.maxima[query];
  const float new_max = page_max > old_max ? page_max : old_max;
  queries.maxima[query] = new_max;
  const auto shift = S::splat(new_max);
  for (uint32_t g = 0; g < kTokenGroups; ++g) {
    groups[g] = vector_exp<S>(S::sub(groups[g], shift));
    S::store(scores + g * kLanes, groups[g]);
  }
  // Exponents of the corrections are taken for all queries at once.
  queries.corrections[query] = old_max - new_max;
  const float page_sum =
      sum_of_lanes<S>(S::add(S::add(groups[0], groups[1]), S::add(groups[2], groups[3])));
  float lanes[kLanes];
  S::store(lanes, vector_exp<S>(S::splat(queries.corrections[query])));
  queries.corrections[query] = lanes[0];
  queries.sums[query] = queries.sums[query] * lanes[0] + page_sum;
}

// n_tokens[i]: tokens that query first + i may see; rising with i.
template <class S, KvType kType, uint32_t kQueries, uint32_t kVectors>
[[gnu::always_inline]] inline void add_values(
    const KvHeadLayout& layout,
    const std::byte* head,
    const Queries& queries,
    uint32_t first,
    uint32_t dim,
    const uint32_t* n_tokens) {
  const size_t token_bytes = layout.padded_dim * kKvBytes<kType>;
  const std::byte* const values = head + layout.values + dim * kKvBytes<kType>;
  const float* weights = queries.scores + first * kKvPageTokens;
  if constexpr (kType == KvType::q8_0) {
    const std::byte* const scales =
        head + layout.value_scales + size_t{2} * kKvPageTokens * (dim / kSubBlock);
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t t = 0; t < kKvPageTokens; t += kLanes) {
        const auto scale = S::load_half(scales + size_t{2} * t);
        const auto weight = S::load(weights + i * kKvPageTokens + t);
        S::store(queries.scaled + (first + i) * kKvPageTokens + t, S::mul(weight, scale));
      }
    }
    weights = queries.scaled + first * kKvPageTokens;
  }
  typename S::F totals[kQueries][kVectors];
  for (uint32_t i = 0; i < kQueries; ++i) {
    const auto correction = S::splat(queries.corrections[first + i]);
    const float* const old = queries.values + size_t{first + i} * layout.padded_dim + dim;
    for (uint32_t v = 0; v < kVectors; ++v) {
      totals[i][v] = S::mul(S::load(old + v * kLanes), correction);
    }
  }
  const auto add_token = [&](uint32_t t, uint32_t i) {
    const auto weight = S::splat(weights[i * kKvPageTokens + t]);
    for (uint32_t v = 0; v < kVectors; ++v) {
      const auto value = load_kv<S, kType>(values + t * token_bytes + v * kLanes * kKvBytes<kType>);
      totals[i][v] = S::fma(value, weight, totals[i][v]);
    }
  };
  for (uint32_t t = 0; t < n_tokens[0]; ++t) {
    typename S::F value[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) {
      value[v] = load_kv<S, kType>(values + t * token_bytes + v * kLanes * kKvBytes<kType>);
    }
    for (uint32_t i = 0; i < kQueries; ++i) {
      const auto weight = S::splat(weights[i * kKvPageTokens + t]);
      for (uint32_t v = 0; v < kVectors; ++v) {
        totals[i][v] = S::fma(value[v], weight, totals[i][v]);
      }
    }
  }
  for (uint32_t i = 1; i < kQueries; ++i) {
    for (uint32_t t = n_tokens[0]; t < n_tokens[i]; ++t)
      add_token(t, i);
  }
  for (uint32_t i = 0; i < kQueries; ++i) {
    float* const sums = queries.values + size_t{first + i} * layout.padded_dim + dim;
    for (uint32_t v = 0; v < kVectors; ++v)
      S::store(sums + v * kLanes, totals[i][v]);
  }
}

template <class S, KvType kType, uint32_t kQueries>
void attend_page(
    const KvHeadLayout& layout,
    const std::byte* head,
    const Queries& queries,
    uint32_t first,
    const uint32_t* n_tokens) {
  score_queries<S, kType, kQueries>(layout, head, queries, first, n_tokens[kQueries - 1]);
  for (uint32_t i = 0; i < kQueries; ++i)
    softmax_step<S>(queries, first + i, n_tokens[i]);
  uint32_t dim = 0;
  for (; dim + 2 * kLanes <= layout.padded_dim; dim += 2 * kLanes) {
    add_values<S, kType, kQueries, 2>(layout, head, queries, first, dim, n_tokens);
  }
  if (dim < layout.padded_dim) {
    add_values<S, kType, kQueries, 1>(layout, head, queries, first, dim, n_tokens);
  }
}

template <class S, KvType kType>
void attend_pages(const AttentionTask& task, const Queries& queries) {
  const uint32_t n_queries = task.n_rows * task.n_heads;
  const uint32_t last_position = task.first_position + task.n_rows - 1;
  for (uint32_t page = 0; page <= last_position / kKvPageTokens; ++page) {
    const std::byte* const head = task.pages + task.page_table[page] * task.page_bytes;
    const uint32_t page_start = page * kKvPageTokens;
    // Rows before first_row end in an earlier page.
    const uint32_t first_row =
        page_start > task.first_position ? page_start - task.first_position : 0;
    uint32_t n_tokens[kMaxQueries];
    for (uint32_t query = first_row * task.n_heads; query < n_queries; ++query) {
      const uint32_t n = task.first_position + query / task.n_heads + 1 - page_start;
      n_tokens[query] = n < kKvPageTokens ? n : kKvPageTokens;
    }
    uint32_t query = first_row * task.n_heads;
    while (query < n_queries) {
      const uint32_t left = n_queries - query;
      const uint32_t* const n = n_tokens + query;
      if (left >= 8 && S::kQueryRows >= 8) {
        attend_page<S, kType, S::kQueryRows>(task.layout, head, queries, query, n);
        query += S::kQueryRows;
      } else if (left >= 4) {
        attend_page<S, kType, 4>(task.layout, head, queries, query, n);
        query += 4;
      } else if (left == 3) {
        attend_page<S, kType, 3>(task.layout, head, queries, query, n);
        query += 3;
      } else if (left == 2) {
        attend_page<S, kType, 2>(task.layout, head, queries, query, n);
        query += 2;
      } else {
        attend_page<S, kType, 1>(task.layout, head, queries, query, n);
        query += 1;
      }
    }
  }
}

template <class S>
void attention(const AttentionTask& task) {
  const uint32_t head_dim = task.layout.head_dim;
  const uint32_t padded_dim = task.layout.padded_dim;
  const uint32_t n_queries = task.n_rows * task.n_heads;
  Queries queries{};
  queries.q = task.scratch;
  queries.values = queries.q + size_t{kMaxQueries} * padded_dim;
  queries.scores = queries.values + size_t{kMaxQueries} * padded_dim;
  queries.scaled = queries.scores + kMaxQueries * kKvPageTokens;
  queries.maxima = queries.scaled + kMaxQueries * kKvPageTokens;
  queries.sums = queries.maxima + kMaxQueries;
  queries.corrections = queries.sums + kMaxQueries;
  for (uint32_t query = 0; query < n_queries; ++query) {
    const float* const q =
        task.q + query / task.n_heads * task.row_stride + size_t{query % task.n_heads} * head_dim;
    for (uint32_t d = 0; d < head_dim; ++d)
      queries.q[d * kMaxQueries + query] = q[d] * task.scale;
    std::memset(queries.values + size_t{query} * padded_dim, 0, padded_dim * sizeof(float));
    queries.maxima[query] = -__builtin_inff();
    queries.sums[query] = 0.0F;
  }
  switch (task.type) {
    case KvType::f32:
      attend_pages<S, KvType::f32>(task, queries);
      break;
    case KvType::f16:
      attend_pages<S, KvType::f16>(task, queries);
      break;
    case KvType::q8_0:
      attend_pages<S, KvType::q8_0>(task, queries);
      break;
  }
  for (uint32_t query = 0; query < n_queries; ++query) {
    float* const out =
        task.out + query / task.n_heads * task.row_stride + size_t{query % task.n_heads} * head_dim;
    const float* const values = queries.values + size_t{query} * padded_dim;
    const float inverse = 1.0F / queries.sums[query];
    for (uint32_t d = 0; d < head_dim; ++d)
      out[d] = values[d] * inverse;
  }
}

// Rounds n <= 32 values to q * scale with the scale in f16; returns its bits.
template <class S>
[[gnu::always_inline]] inline uint16_t round_kv_block(const float* x, uint32_t n, int8_t* q) {
  float values[kSubBlock] = {};
  for (uint32_t i = 0; i < n; ++i)
    values[i] = x[i];
  const auto a = S::load(values);
  const auto b = S::load(values + kLanes);
  const uint32_t largest_bits = largest_magnitude<S>(a, b);
  float largest = 0.0F;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  uint16_t halves[kLanes];
  S::store_half(halves, S::splat(largest / 127.0F));
  float scale[kLanes];
  S::store(scale, S::load_half(halves));
  std::memset(q, 0, kSubBlock);
  const float inverse = 1.0F / scale[0];
  if (largest_bits < kInfinityBits && inverse < __builtin_inff()) {
    // The rounded scale may be too small for the largest value.
    const auto top = S::splat(127.0F);
    const auto bottom = S::splat(-127.0F);
    const auto clamp = [&](typename S::F value) {
      return S::max(S::min(S::mul(value, S::splat(inverse)), top), bottom);
    };
    S::istore_s8(q, round_to_bytes<S>(clamp(a)));
    S::istore_s8(q + kLanes, round_to_bytes<S>(clamp(b)));
  }
  return halves[0];
}

template <class S>
[[gnu::always_inline]] inline void store_kv_rounded(
    const KvHeadLayout& layout,
    const float* k,
    const float* v,
    uint32_t slot,
    std::byte* head) {
  std::byte* const keys =
      head + layout.keys + size_t{slot / kLanes} * layout.head_dim * kLanes + slot % kLanes;
  std::byte* const values = head + layout.values + size_t{slot} * layout.padded_dim;
  for (uint32_t block = 0; block < layout.n_blocks; ++block) {
    const uint32_t first = block * kSubBlock;
    const uint32_t left = layout.head_dim - first;
    const uint32_t n = left < kSubBlock ? left : kSubBlock;
    const size_t scale_offset = size_t{2} * (block * kKvPageTokens + slot);
    int8_t q[kSubBlock];
    const uint16_t key_scale = round_kv_block<S>(k + first, n, q);
    std::memcpy(head + layout.key_scales + scale_offset, &key_scale, sizeof key_scale);
    for (uint32_t d = 0; d < n; ++d) {
      keys[size_t{first + d} * kLanes] = static_cast<std::byte>(q[d]);
    }
    const uint16_t value_scale = round_kv_block<S>(v + first, n, q);
    std::memcpy(head + layout.value_scales + scale_offset, &value_scale, sizeof value_scale);
    std::memcpy(values + first, q, n);
  }
}

template <class S, KvType kType>
[[gnu::always_inline]] inline void store_kv_plain(
    const KvHeadLayout& layout,
    const float* k,
    const float* v,
    uint32_t slot,
    std::byte* head) {
  constexpr size_t kBytes = kKvBytes<kType>;
  std::byte* const keys =
      head + layout.keys +
      (size_t{slot / kLanes} * layout.head_dim * kLanes + slot % kLanes) * kBytes;
  std::byte* const values = head + layout.values + size_t{slot} * layout.padded_dim * kBytes;
  for (uint32_t first = 0; first < layout.head_dim; first += kLanes) {
    const uint32_t left = layout.head_dim - first;
    const uint32_t n = left < kLanes ? left : kLanes;
    std::byte converted[kLanes * kBytes];
    const auto convert = [&](const float* x) {
      const auto lanes = load_some<S>(x + first, n);
      if constexpr (kType == KvType::f32) {
        S::store(reinterpret_cast<float*>(converted), lanes);
      } else {
        S::store_half(converted, lanes);
      }
    };
    convert(k);
    for (uint32_t d = 0; d < n; ++d) {
      std::memcpy(keys + size_t{first + d} * kLanes * kBytes, converted + d * kBytes, kBytes);
    }
    convert(v);
    std::memcpy(values + first * kBytes, converted, n * kBytes);
  }
}

template <class S>
void store_kv(
    KvType type,
    const KvHeadLayout& layout,
    const float* k,
    const float* v,
    uint32_t slot,
    std::byte* head) {
  switch (type) {
    case KvType::f32:
      return store_kv_plain<S, KvType::f32>(layout, k, v, slot, head);
    case KvType::f16:
      return store_kv_plain<S, KvType::f16>(layout, k, v, slot, head);
    case KvType::q8_0:
      return store_kv_rounded<S>(layout, k, v, slot, head);
  }
}

}  // namespace
}  // namespace nightsweep::cpu
