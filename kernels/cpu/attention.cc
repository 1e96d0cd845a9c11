#include "kernels/cpu/attention.h"

#include <algorithm>

#include "kernels/cpu/memory.h"

namespace nightsweep::cpu {
namespace {

// Below this many products (query x key, element by element) one thread is faster.
constexpr uint64_t kSerialProducts = 32768;
// Below this many values written likewise.
constexpr uint64_t kSerialKvValues = 8192;

}  // namespace

void Attention::store(const KvLayer& layer, const StepRows& rows, const float* k, const float* v) {
  const KvShape& shape = layer.shape;
  const KvHeadLayout layout = kv_head_layout(shape);
  const size_t row_floats = size_t{shape.n_kv_heads} * shape.head_dim;
  const auto store_row = [&](uint32_t row) {
    const uint32_t position = rows.positions[row];
    const uint32_t page = rows.page_tables[rows.sequences[row]][position / kKvPageTokens];
    std::byte* head = layer.pages + page * layer.page_bytes;
    for (uint32_t h = 0; h < shape.n_kv_heads; ++h) {
      const size_t from = row * row_floats + size_t{h} * shape.head_dim;
      kernels_->store_kv(shape.type, layout, k + from, v + from, position % kKvPageTokens, head);
      head += layout.size_bytes;
    }
  };
  const uint32_t n_rows = rows.count();
  if (n_rows * row_floats < kSerialKvValues) {
    for (uint32_t row = 0; row < n_rows; ++row)
      store_row(row);
  } else {
    pool_->run(n_rows, [&](uint32_t row, uint32_t) { store_row(row); });
  }
}

void Attention::make_tiles(const StepRows& rows, uint32_t group) {
  const uint32_t n_heads = std::min(group, kMaxQueries);
  const uint32_t max_rows = kMaxQueries / n_heads;
  tiles_.clear();
  uint32_t row = 0;
  while (row < rows.count()) {
    uint32_t n = 1;
    while (n < max_rows && row + n < rows.count() &&
           rows.sequences[row + n] == rows.sequences[row] &&
           rows.positions[row + n] == rows.positions[row] + n) {
      ++n;
    }
    for (uint32_t head = 0; head < group; head += n_heads) {
      tiles_.push_back({row, n, head, std::min(n_heads, group - head)});
    }
    row += n;
  }
}

void Attention::make_scratch(uint32_t padded_dim) {
  const size_t floats = (attention_scratch_floats(padded_dim) + 1023) / 1024 * 1024;
  if (floats <= scratch_floats_) return;
  scratch_floats_ = floats;
  scratch_ = allocate_memory(floats * sizeof(float) * pool_->n_threads());
}

void Attention::run(
    const KvLayer& layer,
    const StepRows& rows,
    const float* q,
    uint32_t n_heads,
    float scale,
    float* out) {
  const KvShape& shape = layer.shape;
  const KvHeadLayout layout = kv_head_layout(shape);
  const uint32_t group = n_heads / shape.n_kv_heads;
  make_tiles(rows, group);
  make_scratch(layout.padded_dim);
  const size_t row_stride = size_t{n_heads} * shape.head_dim;
  const auto run_task = [&](uint32_t chunk, uint32_t thread) {
    const Tile& tile = tiles_[chunk / shape.n_kv_heads];
    const uint32_t kv_head = chunk % shape.n_kv_heads;
    const size_t offset =
        tile.first_row * row_stride + size_t{kv_head * group + tile.first_head} * shape.head_dim;
    AttentionTask task;
    task.type = shape.type;
    task.layout = layout;
    task.pages = layer.pages + kv_head * layout.size_bytes;
    task.page_bytes = layer.page_bytes;
    task.page_table = rows.page_tables[rows.sequences[tile.first_row]].data();
    task.first_position = rows.positions[tile.first_row];
    task.n_rows = tile.n_rows;
    task.n_heads = tile.n_heads;
    task.q = q + offset;
    task.out = out + offset;
    task.row_stride = row_stride;
    task.scale = scale;
    task.scratch = scratch_->floats() + thread * scratch_floats_;
    kernels_->attention(task);
  };
  uint64_t products = 0;
  for (const uint32_t position : rows.positions)
    products += position + 1;
  products *= row_stride;
  const auto n_tasks = static_cast<uint32_t>(tiles_.size()) * shape.n_kv_heads;
  if (products < kSerialProducts) {
    for (uint32_t task = 0; task < n_tasks; ++task)
      run_task(task, 0);
  } else {
    pool_->run(n_tasks, run_task);
  }
}

}  // namespace nightsweep::cpu
