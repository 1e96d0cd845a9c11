#include "engine/model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace nightsweep {

namespace {

struct Architecture {
  const char* name;
  std::unique_ptr<Model> (
      *make)(const GgufModel&, const ModelConfig&, Device&, const ModelOptions&);
  ModelSlices (*cut)(const GgufModel&, const ModelConfig&, uint64_t max_slice_bytes);
};

constexpr Architecture kArchitectures[] = {
    {"llama", make_llama, cut_llama_slices},
};

const Architecture& architecture_of(const GgufModel& gguf, const ModelConfig& config) {
  for (const Architecture& known : kArchitectures) {
    if (config.architecture == known.name) return known;
  }
  fail(
      ErrorKind::model, "{}: general.architecture: expected one of {}, found '{}'", gguf.name(),
      known_architectures(), config.architecture);
}

uint32_t n_rows_of(const GgufTensor& tensor) {
  return tensor.dims.size() > 1 ? static_cast<uint32_t>(tensor.dims[1]) : 1;
}

}  // namespace

std::unique_ptr<Model> Model::make(
    const GgufModel& gguf,
    const ModelConfig& config,
    Device& device,
    const ModelOptions& options) {
  return architecture_of(gguf, config).make(gguf, config, device, options);
}

ModelSlices Model::cut(const GgufModel& gguf, const ModelConfig& config, uint64_t max_slice_bytes) {
  return architecture_of(gguf, config).cut(gguf, config, max_slice_bytes);
}

uint32_t Model::widest_input(const ModelConfig& config) {
  return std::max({config.dim, config.n_heads * config.head_dim, config.ff_dim});
}

uint64_t Model::scratch_bytes(const ModelConfig& config, const StepLimits& limits) {
  uint64_t q_dim = static_cast<uint64_t>(config.n_heads) * config.head_dim;
  uint64_t kv_dim = static_cast<uint64_t>(config.n_kv_heads) * config.head_dim;
  // Queries and what attention makes of them lie where gate and up go later.
  uint64_t row_floats = config.dim + 2 * kv_dim + 2 * std::max<uint64_t>(q_dim, config.ff_dim);
  uint64_t logit_floats = static_cast<uint64_t>(config.n_vocab) + config.dim;
  uint64_t floats = uint64_t{limits.max_rows} * config.dim + limits.rows_at_once() * row_floats +
                    limits.max_logit_rows * logit_floats;
  return floats * sizeof(float);
}

EmbeddingTable::EmbeddingTable(
    const GgufTensor& tensor,
    TensorReader& reader,
    Device& device,
    const ModelOptions& options)
    : tensor_(tensor),
      device_(device),
      reader_(reader),
      rows_at_once_(options.limits.rows_at_once()),
      resident_(options.embedding_resident),
      reads_file_(!resident_) {
  view_ = {
      .type = static_cast<QuantType>(tensor.ggml_type),
      .layout = WeightLayout::file,
      .n_rows = resident_ ? n_rows_of(tensor) : rows_at_once_,
      .n_cols = static_cast<uint32_t>(tensor.dims[0]),
      .data = nullptr};
  memory_ = device.allocate(quant_bytes(view_.type, view_.n_cols) * view_.n_rows);
  view_.data = memory_->data();
  if (resident_) {
    load_tensor(tensor, reader_, device_, memory_->data());
  } else {
    if (!device_.shares_host_memory()) {
      staging_ = device_.allocate_host(memory_->size_bytes());
      // Memory that is never touched is never taken.
      seen_rows_ = std::make_unique_for_overwrite<std::byte[]>(tensor.size_bytes);
      is_seen_.resize(n_rows_of(tensor), options.embedding_in_host);
      if (options.embedding_in_host) reader_.read(tensor, 0, tensor.size_bytes, seen_rows_.get());
      reads_file_ = !options.embedding_in_host;
    }
    staging_ids_.resize(rows_at_once_);
    std::iota(staging_ids_.begin(), staging_ids_.end(), 0U);
  }
}

void EmbeddingTable::lookup(std::span<const uint32_t> ids, float* out) {
  if (resident_) {
    device_.embed(view_, ids, out);
    return;
  }
  while (!ids.empty()) {
    const size_t n = std::min<size_t>(ids.size(), rows_at_once_);
    look_up_at_once(ids.first(n), out);
    ids = ids.subspan(n);
    out += n * view_.n_cols;
  }
}

void EmbeddingTable::look_up_at_once(std::span<const uint32_t> ids, float* out) {
  if (staging_ == nullptr) {
    reader_.read_rows(tensor_, ids, memory_->data());
  } else {
    gather_seen(ids);
    device_.upload(
        staging_->data(), quant_bytes(view_.type, view_.n_cols) * ids.size(), memory_->data());
  }
  device_.embed(view_, std::span<const uint32_t>(staging_ids_).first(ids.size()), out);
}

// Rows into the staging space; those that are new from the file.
void EmbeddingTable::gather_seen(std::span<const uint32_t> ids) {
  const uint64_t row_bytes = quant_bytes(view_.type, view_.n_cols);
  std::vector<uint32_t> missing;
  for (uint32_t id : ids) {
    if (is_seen_[id]) continue;
    is_seen_[id] = true;
    missing.push_back(id);
  }
  if (!missing.empty()) {
    try {
      reader_.read_rows(tensor_, missing, staging_->data());
    } catch (...) {
      for (uint32_t id : missing)
        is_seen_[id] = false;
      throw;
    }
    for (size_t i = 0; i < missing.size(); ++i) {
      std::memcpy(
          seen_rows_.get() + missing[i] * row_bytes, staging_->data() + i * row_bytes, row_bytes);
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(staging_->data() + i * row_bytes, seen_rows_.get() + ids[i] * row_bytes, row_bytes);
  }
}

void load_tensor(const GgufTensor& tensor, TensorReader& reader, Device& device, std::byte* to) {
  if (device.shares_host_memory()) {
    reader.read(tensor, 0, tensor.size_bytes, to);
    return;
  }
  constexpr uint64_t kPieceBytes = 4 << 20;
  auto staging = device.allocate_host(std::min(tensor.size_bytes, kPieceBytes));
  for (uint64_t offset = 0; offset < tensor.size_bytes; offset += kPieceBytes) {
    const uint64_t piece = std::min(kPieceBytes, tensor.size_bytes - offset);
    reader.read(tensor, offset, piece, staging->data());
    device.upload(staging->data(), piece, to + offset);
  }
}

std::unique_ptr<DeviceMemory>
load_floats(const GgufTensor& tensor, TensorReader& reader, Device& device) {
  std::vector<std::byte> bytes(tensor.size_bytes);
  reader.read(tensor, 0, tensor.size_bytes, bytes.data());
  std::vector<float> values(tensor.n_elems());
  dequantize(static_cast<QuantType>(tensor.ggml_type), bytes.data(), values.data(), values.size());
  auto memory = device.allocate(values.size() * sizeof(float));
  device.upload(values.data(), values.size() * sizeof(float), memory->data());
  return memory;
}

}  // namespace nightsweep
