// The inner loops, compiled once for each instruction set. All sets give the same bits: the same
// operations on the same lanes in the same order, fused multiply-adds where and only where the
// source says fma.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cpu/layout.h"
#include "kernels/device.h"
#include "kernels/quant.h"

namespace nightsweep::cpu {

// One packed panel applied to all rows of the input.
struct PanelTask {
  const std::byte* panel = nullptr;
  const std::byte* ahead = nullptr;  // as many bytes, fetched into the cache on the way
  const InputTiles* input = nullptr;
  const float* bias = nullptr;  // (n_outputs) or null
  float* out = nullptr;         // where output 0 of row 0 goes
  size_t out_stride = 0;
  uint32_t n_outputs = 0;  // at most 16
  bool accumulate = false;
};

// Query heads that read one KV head, of rows of one sequence at rising positions.
inline constexpr uint32_t kMaxQueries = 32;
struct AttentionTask {
  KvType type = KvType::f16;
  KvHeadLayout layout;
  const std::byte* pages = nullptr;  // the KV head in page 0
  size_t page_bytes = 0;
  const uint32_t* page_table = nullptr;
  uint32_t first_position = 0;
  uint32_t n_rows = 0;       // n_rows * n_heads <= kMaxQueries
  uint32_t n_heads = 0;      // query heads
  const float* q = nullptr;  // (n_rows, row_stride); the heads side by side
  float* out = nullptr;
  size_t row_stride = 0;
  float scale = 1.0F;
  float* scratch = nullptr;  // attention_scratch_floats(head_dim), aligned to 64 bytes
};

static constexpr size_t attention_scratch_floats(uint32_t padded_dim) {
  // queries, sums of values, two sets of scores, maxima, sums, corrections
  return size_t{kMaxQueries} * (2 * padded_dim + 2 * kKvPageTokens + 3);
}

struct KernelTable {
  const char* name;         // "AVX-512 VNNI"
  const char* option_name;  // "avx512"

  // Rounded input (quantised types only) and float32 input (all types).
  void (*panel_rounded)(QuantType type, const PanelTask& task);
  void (*panel_float)(QuantType type, const PanelTask& task);

  // x: (n_rows, n_cols); tile: in the layout of layout.h.
  void (*round_tile)(const float* x, uint32_t n_rows, uint32_t n_cols, std::byte* tile);
  void (*float_tile)(const float* x, uint32_t n_rows, uint32_t n_cols, std::byte* tile);

  void (*rms_norm)(const float* x, const float* weight, float epsilon, uint32_t dim, float* out);
  void (*swiglu)(const float* gate, const float* up, size_t count, float* out);
  // One row of one head: x[i], x[i + half] or x[2i], x[2i + 1] turned by (cosines[i], sines[i]).
  void (
      *rope)(float* x, const float* cosines, const float* sines, uint32_t n_pairs, bool half_split);

  // One token of one KV head into `head`, the KV head in its page.
  void (*store_kv)(
      KvType type,
      const KvHeadLayout& layout,
      const float* k,
      const float* v,
      uint32_t slot,
      std::byte* head);
  void (*attention)(const AttentionTask& task);
};

// Null where the program was not built for the processor's family.
const KernelTable* generic_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();

// The best that this CPU runs, or the named one. Throws Error(device).
const KernelTable& choose_kernels(std::string_view instruction_set);

}  // namespace nightsweep::cpu
