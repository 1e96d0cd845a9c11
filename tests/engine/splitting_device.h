// The control of the invariance tests: a device that sums in one piece for a few rows and in two
// pieces for many, as a split along K chosen by batch size would. It must be caught.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace nightsweep {

class SplittingDevice final : public Device {
 public:
  explicit SplittingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  void linear(std::span<const LinearPart> parts) override {
    for (const LinearPart& part : parts) {
      std::vector<float> weights(part.weight.n_cols);
      size_t row_bytes = quant_bytes(part.weight.type, part.weight.n_cols);
      for (uint32_t o = 0; o < part.weight.n_rows; ++o) {
        dequantize(
            part.weight.type, part.weight.data + o * row_bytes, weights.data(), weights.size());
        for (uint32_t r = 0; r < rows_; ++r) {
          float* out = part.out + static_cast<size_t>(r) * part.out_stride + part.out_column + o;
          float sum = dot(input_ + static_cast<size_t>(r) * part.weight.n_cols, weights);
          if (part.bias != nullptr) sum += part.bias[o];
          *out = part.accumulate ? *out + sum : sum;
        }
      }
    }
  }
  void set_input(const float* x, uint32_t rows, uint32_t /*n_cols*/) override {
    input_ = x;
    rows_ = rows;
  }
  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return quant_bytes(type, n_cols) * n_rows;
  }
  void pack(const MatrixView& file, std::byte* packed) override {
    std::memcpy(packed, file.data, packed_bytes(file.type, file.n_rows, file.n_cols));
  }

  std::string description() const override { return "splits sums by batch size"; }
  std::string kernel_version() const override { return "splitting"; }
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
  size_t kv_page_bytes(const KvShape& shape) const override {
    return device_->kv_page_bytes(shape);
  }
  void reserve(uint32_t max_rows, uint32_t max_cols) override {
    device_->reserve(max_rows, max_cols);
  }
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
  void begin_step(const StepRows& rows) override { device_->begin_step(rows); }
  void rope(const RopeShape& shape, float* x) override { device_->rope(shape, x); }
  void store_kv(const KvLayer& layer, const float* k, const float* v) override {
    device_->store_kv(layer, k, v);
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
  float dot(const float* x, const std::vector<float>& w) const {
    size_t middle = rows_ > 8 ? w.size() / 2 : w.size();
    float first = 0;
    float second = 0;
    for (size_t i = 0; i < middle; ++i)
      first += x[i] * w[i];
    for (size_t i = middle; i < w.size(); ++i)
      second += x[i] * w[i];
    return first + second;
  }

  std::unique_ptr<Device> device_;
  const float* input_ = nullptr;
  uint32_t rows_ = 0;
};

}  // namespace nightsweep
