// Causal attention over KV pages.
//
// THE CHAIN. Positions are cut into splits of kSplitTokens. A split of a query is worked page by
// page with a running maximum m, sum l and values o; splits are merged in rising order:
//     m' = max(M, m);  L = L 2^(M - m') + l 2^(m - m');  O = O 2^(M - m') + o 2^(m - m')
// Nothing else decides a bit: which queries share a tile, whether a block merges in registers or
// leaves the splits to a second kernel, and how many blocks work on a query.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/linear_layout.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/staging.h"
#include "kernels/device.h"

namespace nightsweep::cuda {

inline constexpr uint32_t kSplitPages = 4;
inline constexpr uint32_t kSplitTokens = kSplitPages * kKvPageTokens;
inline constexpr uint32_t kTileQueries = 16;  // rows of a product of the tensor cores

constexpr uint32_t split_count(uint32_t position) {
  return position / kSplitTokens + 1;
}

// The work of a block for each KV head: some queries of one sequence over some splits. Query i of a
// sequence's rows is row i / group, head i % group of the KV head's group.
struct AttentionItem {
  uint32_t first_row;       // of the sequence's rows in the step
  uint32_t first_position;  // of that row
  uint32_t first_query;
  uint32_t n_queries;
  uint32_t first_split;
  uint32_t n_splits;
  uint32_t table;       // index of the sequence's first page in the page table
  uint32_t is_partial;  // leaves its splits in the workspace
};

// A row whose splits are merged from the workspace.
struct MergeRow {
  uint32_t row;
  uint32_t n_splits;
};

enum class AttentionMode : uint32_t {
  one_tile,   // of few queries: splits go to the workspace, or there is a single one
  block,      // several tiles share the pages; splits as above
  block_sum,  // the same, splits merged in registers
};
// Tiles of a block of the modes `block` and `block_sum`.
constexpr uint32_t tiles_per_block(uint32_t padded_dim) {
  return padded_dim > 128 ? 2 : 4;
}

// Arguments of the kernels.
struct AttentionArgs {
  const AttentionItem* items = nullptr;
  const uint32_t* page_table = nullptr;
  const uint32_t* workspace_rows = nullptr;  // (rows) first entry of a row's splits: [head][split]
  const std::byte* pages = nullptr;
  size_t page_bytes = 0;
  const float* q = nullptr;
  float* out = nullptr;           // (rows, n_heads, head_dim), where there is no `input`
  InputPlace input;               // of the linear operator that follows
  float* split_values = nullptr;  // (entries, padded dim)
  float2* split_sums = nullptr;   // (entries) m and l
  uint32_t head_dim = 0;
  uint32_t group = 0;    // query heads of a KV head
  uint32_t n_heads = 0;  // query heads
  float scale_log2 = 0;  // softmax scale times log2(e)
};

// One file a padded head size: attention_dN.cu.
template <uint32_t kDim>
void launch_attention(
    AttentionMode mode,
    KvType type,
    uint32_t n_items,
    uint32_t n_kv_heads,
    const AttentionArgs& args,
    cudaStream_t stream);

void launch_merge(
    uint32_t padded_dim,
    const MergeRow* rows,
    uint32_t n_rows,
    const AttentionArgs& args,
    cudaStream_t stream);

class Attention {
 public:
  Attention(const GpuInfo& gpu, Staging& staging, cudaStream_t stream)
      : gpu_(gpu), staging_(staging), stream_(stream) {}

  static size_t workspace_bytes();
  void reserve();
  // The host's spans must stay until the next begin_step(). Plans for the heads of the step before,
  // if there was one: a copy of tables in the middle of a step would stop its kernels.
  void begin_step(const StepRows& rows);
  // To float32: (rows, n_heads, head_dim).
  void run(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out);
  // To the input of the linear operator that follows, of as many rows.
  void
  run(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, const InputPlace& input);

 private:
  // Rows of one sequence in a step.
  struct Chunk {
    uint32_t first_row;
    uint32_t n_rows;
    uint32_t first_position;
    uint32_t table;
  };
  // What fits the workspace at once.
  struct Wave {
    std::vector<AttentionItem> items[3];  // by mode
    std::vector<MergeRow> merges;
    const AttentionItem* gpu_items[3] = {};
    const MergeRow* gpu_merges = nullptr;
    uint64_t n_entries = 0;
  };
  void run(
      const KvLayer& layer,
      const float* q,
      uint32_t n_heads,
      float scale,
      float* out,
      const InputPlace& input);
  void plan();
  std::vector<Chunk> find_chunks();
  void add_chunk(const Chunk& chunk, uint32_t tiles, bool may_split, uint32_t splits_an_item);
  bool reserve_entries(const Chunk& chunk);
  void add_items(
      AttentionMode mode,
      const Chunk& chunk,
      uint32_t queries,
      bool is_partial,
      uint32_t splits_an_item);
  void send_plan();

  const GpuInfo& gpu_;
  Staging& staging_;
  cudaStream_t stream_;
  std::unique_ptr<DeviceMemory> workspace_;
  StepRows step_;

  // The plan of a step, for these heads.
  uint32_t n_heads_ = 0;  // 0: none was asked for
  uint32_t n_kv_heads_ = 0;
  uint32_t padded_dim_ = 0;
  uint32_t group_ = 0;
  uint64_t max_entries_ = 0;
  std::vector<Wave> waves_;  // empty: no plan yet
  std::vector<uint32_t> page_table_;
  std::vector<uint32_t> workspace_rows_;
  const uint32_t* gpu_page_table_ = nullptr;
  const uint32_t* gpu_workspace_rows_ = nullptr;
};

}  // namespace nightsweep::cuda
