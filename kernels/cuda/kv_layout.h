// One KV head of a page on the GPU. Compiled by the host's compiler and by nvcc.
//
//   f16    keys   [token][padded dim] half          values [token][padded dim] half
//   q8_0   keys   [token][padded dim] int8          values [token][padded dim] int8
//          scales of keys [token][block of 32] half, scales of values likewise
//
// Elements past head_dim are zero. A token whose key or value is not finite has NaN as its key and
// zero as its value: whoever may see the token gets NaN, and whoever may not is not reached by it,
// because a masked score is replaced and a value's product with a weight of zero is zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

namespace nightsweep::cuda {

inline constexpr uint32_t kKvBlock = 32;  // elements of q8_0 under one scale

// Head sizes that the attention kernels are made for; others are padded to the next one.
inline constexpr uint32_t kHeadDims[] = {32, 64, 80, 96, 128, 256};
inline constexpr uint32_t kMaxHeadDim = 256;

// 0: larger than any.
constexpr uint32_t padded_head_dim(uint32_t head_dim) {
  for (const uint32_t padded : kHeadDims) {
    if (head_dim <= padded) return padded;
  }
  return 0;
}

struct KvHeadLayout {
  uint32_t padded_dim;
  uint32_t n_blocks;   // scales a token, q8_0 only
  uint32_t row_bytes;  // of a token's key or value
  uint32_t values;     // offsets in bytes; keys are at 0
  uint32_t key_scales;
  uint32_t value_scales;
  uint32_t size_bytes;
};

constexpr KvHeadLayout kv_head_layout(KvType type, uint32_t head_dim) {
  KvHeadLayout layout{};
  layout.padded_dim = padded_head_dim(head_dim);
  layout.row_bytes = layout.padded_dim * (type == KvType::q8_0 ? 1 : 2);
  layout.values = kKvPageTokens * layout.row_bytes;
  layout.key_scales = 2 * layout.values;
  layout.n_blocks = type == KvType::q8_0 ? (layout.padded_dim + kKvBlock - 1) / kKvBlock : 0;
  layout.value_scales = layout.key_scales + kKvPageTokens * layout.n_blocks * 2;
  layout.size_bytes = layout.value_scales + kKvPageTokens * layout.n_blocks * 2;
  return layout;
}

}  // namespace nightsweep::cuda
