// Cuts a step's attention into the work of blocks. The cut changes no bit: see attention.h.
#include "kernels/cuda/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

namespace {

constexpr size_t kWorkspaceBytes = kAttentionWorkspaceBytes;
// Blocks of the mode one_tile that fit a processor, by their shared memory; and how many rounds of
// them keep all processors busy until the end.
constexpr uint32_t kTilesAProcessor = 6;
constexpr uint32_t kRounds = 3;

constexpr size_t entry_bytes(uint32_t padded_dim) {
  return padded_dim * sizeof(float) + sizeof(float2);
}

}  // namespace

size_t Attention::workspace_bytes() {
  return kWorkspaceBytes;
}

void Attention::reserve() {
  workspace_ = allocate_on_gpu(kWorkspaceBytes);
}

std::vector<Attention::Chunk> Attention::find_chunks() {
  std::vector<Chunk> chunks;
  page_table_.clear();
  uint32_t table = 0;
  for (uint32_t row = 0; row < step_.count();) {
    const uint32_t sequence = step_.sequences[row];
    // Of a sequence whose rows are here, and once: of a large step this may be one batch of many.
    if (row == 0 || step_.sequences[row - 1] != sequence) {
      const std::span<const uint32_t> pages = step_.page_tables[sequence];
      table = static_cast<uint32_t>(page_table_.size());
      page_table_.insert(page_table_.end(), pages.begin(), pages.end());
    }
    uint32_t n = 1;
    while (row + n < step_.count() && step_.sequences[row + n] == sequence &&
           step_.positions[row + n] == step_.positions[row] + n) {
      ++n;
    }
    chunks.push_back({row, n, step_.positions[row], table});
    row += n;
  }
  return chunks;
}

// Places for the splits of all rows of a chunk; false: not even an empty workspace has them.
bool Attention::reserve_entries(const Chunk& chunk) {
  uint64_t needed = 0;
  for (uint32_t i = 0; i < chunk.n_rows; ++i)
    needed += uint64_t{split_count(chunk.first_position + i)} * n_heads_;
  if (needed > max_entries_) return false;
  if (waves_.back().n_entries + needed > max_entries_) waves_.emplace_back();
  Wave& wave = waves_.back();
  for (uint32_t i = 0; i < chunk.n_rows; ++i) {
    const uint32_t n_splits = split_count(chunk.first_position + i);
    workspace_rows_[chunk.first_row + i] = static_cast<uint32_t>(wave.n_entries);
    wave.merges.push_back({chunk.first_row + i, n_splits});
    wave.n_entries += uint64_t{n_splits} * n_heads_;
  }
  return true;
}

void Attention::add_items(
    AttentionMode mode,
    const Chunk& chunk,
    uint32_t queries,
    bool is_partial,
    uint32_t splits_an_item) {
  std::vector<AttentionItem>& items = waves_.back().items[static_cast<size_t>(mode)];
  const uint32_t all_queries = chunk.n_rows * group_;
  for (uint32_t first = 0; first < all_queries; first += queries) {
    const uint32_t n = std::min(queries, all_queries - first);
    const uint32_t n_splits = split_count(chunk.first_position + (first + n - 1) / group_);
    for (uint32_t split = 0; split < n_splits; split += splits_an_item) {
      items.push_back(
          {.first_row = chunk.first_row,
           .first_position = chunk.first_position,
           .first_query = first,
           .n_queries = n,
           .first_split = split,
           .n_splits = std::min(splits_an_item, n_splits - split),
           .table = chunk.table,
           .is_partial = is_partial ? 1U : 0U});
    }
  }
}

// A chunk of few queries is one warp's tile; a longer one shares pages among the warps of a block,
// and merges in registers where there are blocks enough.
void Attention::add_chunk(
    const Chunk& chunk,
    uint32_t tiles,
    bool may_split,
    uint32_t splits_an_item) {
  const bool is_small = chunk.n_rows * group_ <= kTileQueries;
  const uint32_t n_splits = split_count(chunk.first_position + chunk.n_rows - 1);
  const uint32_t queries = is_small ? kTileQueries : tiles * kTileQueries;
  const AttentionMode mode = is_small ? AttentionMode::one_tile : AttentionMode::block;
  if (n_splits == 1) {
    add_items(mode, chunk, queries, false, 1);
  } else if ((is_small || may_split) && reserve_entries(chunk)) {
    add_items(mode, chunk, queries, true, splits_an_item);
  } else {
    add_items(AttentionMode::block_sum, chunk, tiles * kTileQueries, false, UINT32_MAX);
  }
}

void Attention::begin_step(const StepRows& rows) {
  step_ = rows;
  waves_.clear();
  if (n_heads_ != 0 && step_.count() != 0 && step_.sequences.size() == step_.count()) plan();
}

void Attention::plan() {
  group_ = n_heads_ / n_kv_heads_;
  max_entries_ = kWorkspaceBytes / entry_bytes(padded_dim_);
  workspace_rows_.assign(step_.count(), 0);
  waves_.clear();
  waves_.emplace_back();
  const std::vector<Chunk> chunks = find_chunks();
  const uint32_t tiles = tiles_per_block(padded_dim_);

  uint64_t small_splits = 0;
  uint64_t large_blocks = 0;
  for (const Chunk& chunk : chunks) {
    const uint32_t queries = chunk.n_rows * group_;
    if (queries <= kTileQueries) {
      small_splits += split_count(chunk.first_position + chunk.n_rows - 1);
    } else {
      large_blocks += (queries + tiles * kTileQueries - 1) / (tiles * kTileQueries);
    }
  }
  // As few pieces as keep the processors busy: each costs a start and a merge.
  const uint64_t wanted = uint64_t{gpu_.n_processors} * kTilesAProcessor * kRounds;
  const auto small_run =
      static_cast<uint32_t>(std::clamp<uint64_t>(small_splits * n_kv_heads_ / wanted, 1, 64));
  const bool may_split = large_blocks * n_kv_heads_ < gpu_.n_processors;
  for (const Chunk& chunk : chunks) {
    const bool is_small = chunk.n_rows * group_ <= kTileQueries;
    add_chunk(chunk, tiles, may_split, is_small ? small_run : 1);
  }
  send_plan();
}

void Attention::send_plan() {
  staging_.together([&] {
    const auto send = [&](const auto& table, auto*& gpu) { gpu = staging_.send(std::span(table)); };
    send(page_table_, gpu_page_table_);
    send(workspace_rows_, gpu_workspace_rows_);
    for (Wave& wave : waves_) {
      for (size_t mode = 0; mode < 3; ++mode)
        send(wave.items[mode], wave.gpu_items[mode]);
      send(wave.merges, wave.gpu_merges);
    }
  });
}

void Attention::run(
    const KvLayer& layer,
    const float* q,
    uint32_t n_heads,
    float scale,
    float* out) {
  run(layer, q, n_heads, scale, out, {});
}

void Attention::run(
    const KvLayer& layer,
    const float* q,
    uint32_t n_heads,
    float scale,
    const InputPlace& input) {
  run(layer, q, n_heads, scale, nullptr, input);
}

void Attention::run(
    const KvLayer& layer,
    const float* q,
    uint32_t n_heads,
    float scale,
    float* out,
    const InputPlace& input) {
  if (step_.count() == 0) return;
  const KvShape& shape = layer.shape;
  const uint32_t padded_dim = padded_head_dim(shape.head_dim);
  if (waves_.empty() || n_heads_ != n_heads || n_kv_heads_ != shape.n_kv_heads ||
      padded_dim_ != padded_dim) {
    n_heads_ = n_heads;
    n_kv_heads_ = shape.n_kv_heads;
    padded_dim_ = padded_dim;
    plan();
  }
  std::byte* const workspace = workspace_->data();
  const AttentionArgs common{
      .items = nullptr,
      .page_table = gpu_page_table_,
      .workspace_rows = gpu_workspace_rows_,
      .pages = layer.pages,
      .page_bytes = layer.page_bytes,
      .q = q,
      .out = out,
      .input = input,
      .split_values = reinterpret_cast<float*>(workspace),
      .split_sums =
          reinterpret_cast<float2*>(workspace + max_entries_ * padded_dim * sizeof(float)),
      .head_dim = shape.head_dim,
      .group = group_,
      .n_heads = n_heads,
      .scale_log2 = static_cast<float>(static_cast<double>(scale) * 1.4426950408889634)};
  for (const Wave& wave : waves_) {
    for (uint32_t number = 0; number < 3; ++number) {
      const auto n_items = static_cast<uint32_t>(wave.items[number].size());
      if (n_items == 0) continue;
      AttentionArgs args = common;
      args.items = wave.gpu_items[number];
      const auto start = [&]<uint32_t kDim>() {
        launch_attention<kDim>(
            static_cast<AttentionMode>(number), shape.type, n_items, shape.n_kv_heads, args,
            stream_);
      };
      switch (padded_dim) {
        case 32:
          start.operator()<32>();
          break;
        case 64:
          start.operator()<64>();
          break;
        case 80:
          start.operator()<80>();
          break;
        case 96:
          start.operator()<96>();
          break;
        case 128:
          start.operator()<128>();
          break;
        default:
          start.operator()<256>();
      }
    }
    if (!wave.merges.empty()) {
      launch_merge(
          padded_dim, wave.gpu_merges, static_cast<uint32_t>(wave.merges.size()), common, stream_);
    }
  }
}

}  // namespace nightsweep::cuda
