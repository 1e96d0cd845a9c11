// A device that does all as another does, for tests that change a part of it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/device.h"

namespace nightsweep {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::string description() const override { return device_->description(); }
  std::string kernel_version() const override { return device_->kernel_version(); }
  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    return device_->allocate(size_bytes);
  }
  bool shares_host_memory() const override { return device_->shares_host_memory(); }
  void upload(const void* from, size_t size_bytes, std::byte* to) override {
    device_->upload(from, size_bytes, to);
  }
  const float* read_back(const float* from, size_t count) override {
    return device_->read_back(from, count);
  }
  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return device_->packed_bytes(type, n_rows, n_cols);
  }
  void pack(const MatrixView& file, std::byte* packed) override { device_->pack(file, packed); }
  size_t kv_page_bytes(const KvShape& shape) const override {
    return device_->kv_page_bytes(shape);
  }
  void reserve(uint32_t max_rows, uint32_t max_cols) override {
    device_->reserve(max_rows, max_cols);
  }
  void begin_step(const StepRows& rows) override { device_->begin_step(rows); }
  void embed(const MatrixView& table, std::span<const uint32_t> ids, float* out) override {
    device_->embed(table, ids, out);
  }
  void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* out) override {
    device_->rms_norm(x, weight, epsilon, rows, dim, out);
  }
  void set_input(const float* x, uint32_t rows, uint32_t n_cols) override {
    device_->set_input(x, rows, n_cols);
  }
  void linear(std::span<const LinearPart> parts) override { device_->linear(parts); }
  void rope(const RopeShape& shape, float* x) override { device_->rope(shape, x); }
  void store_kv(const KvLayer& layer, const float* k, const float* v) override {
    device_->store_kv(layer, k, v);
  }
  void copy_kv_pages(
      const KvLayer& first,
      uint32_t n_layers,
      size_t layer_bytes,
      std::span<const KvPageCopy> copies) override {
    device_->copy_kv_pages(first, n_layers, layer_bytes, copies);
  }
  void attention(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out)
      override {
    device_->attention(layer, q, n_heads, scale, out);
  }
  void swiglu(const float* gate, const float* up, size_t count, float* out) override {
    device_->swiglu(gate, up, count, out);
  }
  void gather_rows(const float* x, std::span<const uint32_t> rows, uint32_t dim, float* out)
      override {
    device_->gather_rows(x, rows, dim, out);
  }
  void synchronize() override { device_->synchronize(); }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace nightsweep
