// A device with memory of its own behind the face of one that shares the host's: every operator
// copies what it reads to the device and what it writes back. Slow, and so that one test body, with
// its arrays in the host's memory, runs on every device.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace nightsweep {

class MirroredDevice final : public Device {
 public:
  explicit MirroredDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {
    device_->reserve(kMaxRows, kMaxCols);
  }

  std::string description() const override { return device_->description(); }
  std::string kernel_version() const override { return device_->kernel_version(); }
  bool shares_host_memory() const override { return true; }

  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    return std::make_unique<Memory>(*this, size_bytes);
  }
  void upload(const void* from, size_t size_bytes, std::byte* to) override {
    std::memcpy(to, from, size_bytes);
  }
  const float* read_back(const float* from, size_t /*count*/) override { return from; }

  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return device_->packed_bytes(type, n_rows, n_cols);
  }
  void pack(const MatrixView& file, std::byte* packed) override {
    Copy copy = make(packed_bytes(file.type, file.n_rows, file.n_cols));
    device_->pack(file, copy->data());
    device_->synchronize();
    fetch(*copy, packed);
  }
  size_t kv_page_bytes(const KvShape& shape) const override {
    return device_->kv_page_bytes(shape);
  }
  void reserve(uint32_t max_rows, uint32_t max_cols) override {
    device_->reserve(max_rows, max_cols);
  }
  void begin_step(const StepRows& rows) override {
    step_ = rows;
    device_->begin_step(rows);
  }

  void embed(const MatrixView& table, std::span<const uint32_t> ids, float* out) override {
    MatrixView view = table;
    Copy weights = send_matrix(table, view, false);
    Copy result = make(ids.size() * table.n_cols * sizeof(float));
    device_->embed(view, ids, result->floats());
    fetch(*result, out);
  }
  void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* out) override {
    Copy in = send(x, size_t{rows} * dim);
    Copy weights = send(weight, dim);
    device_->rms_norm(in->floats(), weights->floats(), epsilon, rows, dim, in->floats());
    fetch(*in, out);
  }
  void set_input(const float* x, uint32_t rows, uint32_t n_cols) override {
    input_ = send(x, size_t{rows} * n_cols);
    rows_ = rows;
    device_->set_input(input_->floats(), rows, n_cols);
  }
  void linear(std::span<const LinearPart> parts) override {
    std::vector<Copy> held;
    std::vector<LinearPart> there(parts.begin(), parts.end());
    std::map<float*, DeviceMemory*> outputs;  // one copy of an output that parts share
    for (size_t i = 0; i < parts.size(); ++i) {
      const LinearPart& part = parts[i];
      held.push_back(send_matrix(part.weight, there[i].weight, true));
      if (part.bias != nullptr) {
        held.push_back(send(part.bias, part.weight.n_rows));
        there[i].bias = held.back()->floats();
      }
      if (!outputs.contains(part.out)) {
        held.push_back(send(part.out, size_t{rows_} * part.out_stride));
        outputs[part.out] = held.back().get();
      }
      there[i].out = outputs[part.out]->floats();
    }
    device_->linear(there);
    for (auto& [host, copy] : outputs)
      fetch(*copy, host);
  }
  void rope(const RopeShape& shape, float* x) override {
    Copy copy = send(x, size_t{step_.count()} * shape.n_heads * shape.head_dim);
    device_->rope(shape, copy->floats());
    fetch(*copy, x);
  }
  void store_kv(const KvLayer& layer, const float* k, const float* v) override {
    const size_t count = size_t{step_.count()} * layer.shape.n_kv_heads * layer.shape.head_dim;
    Copy keys = send(k, count);
    Copy values = send(v, count);
    Copy pages = send_pages(layer);
    device_->store_kv(at(layer, *pages), keys->floats(), values->floats());
    fetch(*pages, layer.pages);
  }
  // `first` begins an allocation.
  void copy_kv_pages(
      const KvLayer& first,
      uint32_t n_layers,
      size_t layer_bytes,
      std::span<const KvPageCopy> copies) override {
    Copy pages = send_pages(first);
    device_->copy_kv_pages(at(first, *pages), n_layers, layer_bytes, copies);
    fetch(*pages, first.pages);
  }
  void attention(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out)
      override {
    const size_t count = size_t{step_.count()} * n_heads * layer.shape.head_dim;
    Copy queries = send(q, count);
    Copy result = send(out, count);
    Copy pages = send_pages(layer);
    device_->attention(at(layer, *pages), queries->floats(), n_heads, scale, result->floats());
    fetch(*result, out);
  }
  void attention_input(
      const KvLayer& layer,
      const float* q,
      uint32_t rows,
      uint32_t n_heads,
      float scale,
      float* /*attended*/) override {
    const size_t count = size_t{rows} * n_heads * layer.shape.head_dim;
    Copy queries = send(q, count);
    input_ = make(count * sizeof(float));
    rows_ = rows;
    Copy pages = send_pages(layer);
    device_->attention_input(
        at(layer, *pages), queries->floats(), rows, n_heads, scale, input_->floats());
    device_->synchronize();
  }
  void rope_and_store(
      const RopeShape& q_shape,
      const RopeShape& k_shape,
      const KvLayer& layer,
      float* q,
      float* k,
      const float* v) override {
    const size_t rows = step_.count();
    Copy queries = send(q, rows * q_shape.n_heads * q_shape.head_dim);
    Copy keys = send(k, rows * k_shape.n_heads * k_shape.head_dim);
    Copy values = send(v, rows * k_shape.n_heads * k_shape.head_dim);
    Copy pages = send_pages(layer);
    device_->rope_and_store(
        q_shape, k_shape, at(layer, *pages), queries->floats(), keys->floats(), values->floats());
    fetch(*queries, q);
    fetch(*pages, layer.pages);
  }
  void swiglu(const float* gate, const float* up, size_t count, float* out) override {
    Copy gates = send(gate, count);
    Copy ups = send(up, count);
    device_->swiglu(gates->floats(), ups->floats(), count, gates->floats());
    fetch(*gates, out);
  }
  void gather_rows(const float* x, std::span<const uint32_t> rows, uint32_t dim, float* out)
      override {
    uint32_t last = 0;
    for (uint32_t row : rows)
      last = std::max(last, row);
    Copy from = send(x, (size_t{last} + 1) * dim);
    Copy to = make(rows.size() * dim * sizeof(float));
    device_->gather_rows(from->floats(), rows, dim, to->floats());
    fetch(*to, out);
  }
  bool can_pick() const override { return device_->can_pick(); }
  void pick(float* logits, uint32_t n_vocab, std::span<const PickRow> rows, std::span<Pick> picks)
      override {
    uint32_t last = 0;
    for (const PickRow& row : rows)
      last = std::max(last, row.row);
    Copy copy = send(logits, (size_t{last} + 1) * n_vocab);
    device_->pick(copy->floats(), n_vocab, rows, picks);
  }
  void synchronize() override { device_->synchronize(); }

 private:
  static constexpr uint32_t kMaxRows = 512;
  static constexpr uint32_t kMaxCols = 8192;
  using Copy = std::unique_ptr<DeviceMemory>;

  // The host's side of an allocation; its size is known again by its address.
  class Memory final : public DeviceMemory {
   public:
    Memory(MirroredDevice& device, size_t size_bytes)
        : device_(device), bytes_(size_bytes + kAlignment) {
      const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
      data_ = bytes_.data() + (kAlignment - address % kAlignment) % kAlignment;
      size_bytes_ = size_bytes;
      device_.sizes_[data_] = size_bytes;
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() override { device_.sizes_.erase(data_); }
    std::byte* data() override { return data_; }
    size_t size_bytes() const override { return size_bytes_; }

   private:
    static constexpr size_t kAlignment = 4096;
    MirroredDevice& device_;
    std::vector<std::byte> bytes_;
    std::byte* data_ = nullptr;
    size_t size_bytes_ = 0;
  };

  Copy make(size_t size_bytes) { return device_->allocate(size_bytes); }
  Copy send_bytes(const void* from, size_t size_bytes) {
    Copy copy = make(size_bytes);
    device_->upload(from, size_bytes, copy->data());
    return copy;
  }
  Copy send(const float* from, size_t count) { return send_bytes(from, count * sizeof(float)); }
  // Packed where an operator takes nothing else.
  Copy send_matrix(const MatrixView& from, MatrixView& there, bool must_be_packed) {
    const size_t packed = packed_bytes(from.type, from.n_rows, from.n_cols);
    Copy copy;
    if (from.layout == WeightLayout::packed) {
      copy = send_bytes(from.data, packed);
    } else if (must_be_packed) {
      copy = make(packed);
      device_->pack(from, copy->data());
      device_->synchronize();
      there.layout = WeightLayout::packed;
    } else {
      copy = send_bytes(from.data, quant_bytes(from.type, from.n_cols) * from.n_rows);
    }
    there.data = copy->data();
    return copy;
  }
  Copy send_pages(const KvLayer& layer) { return send_bytes(layer.pages, sizes_.at(layer.pages)); }
  static KvLayer at(const KvLayer& layer, DeviceMemory& pages) {
    return {.shape = layer.shape, .pages = pages.data(), .page_bytes = layer.page_bytes};
  }
  void fetch(DeviceMemory& from, void* to) {
    const size_t n_floats = (from.size_bytes() + sizeof(float) - 1) / sizeof(float);
    std::memcpy(to, device_->read_back(from.floats(), n_floats), from.size_bytes());
  }

  std::unique_ptr<Device> device_;
  std::map<const std::byte*, size_t> sizes_;
  StepRows step_;
  Copy input_;
  uint32_t rows_ = 0;
};

}  // namespace nightsweep
