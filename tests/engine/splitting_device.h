// The control of the invariance tests: a device that sums in one piece for a few rows and in two
// pieces for many, as a split along K chosen by batch size would. It must be caught.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "support/forwarding_device.h"

namespace nightsweep {

class SplittingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

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

  const float* input_ = nullptr;
  uint32_t rows_ = 0;
};

}  // namespace nightsweep
