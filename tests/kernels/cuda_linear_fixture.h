// Matrices on a CUDA device and the linear operator applied to them, for its tests.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cuda/linear.h"
#include "kernels/oracle.h"

namespace nightsweep::cuda {

inline constexpr uint32_t kPoison = 0x7FC0DEAD;  // a NaN

class Buffer {
 public:
  explicit Buffer(size_t size_bytes) : size_bytes_(size_bytes) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(size_bytes, 1)), cudaSuccess);
  }
  template <typename T>
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size() * sizeof(T)) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }
  template <typename T>
  std::vector<T> read() const {
    std::vector<T> values(size_bytes_ / sizeof(T));
    EXPECT_EQ(
        cudaMemcpy(values.data(), data_, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return values;
  }

 private:
  size_t size_bytes_;
  void* data_ = nullptr;
};

inline Buffer poisoned(size_t n_floats) {
  return Buffer(std::vector<uint32_t>(n_floats, kPoison));
}

struct Matrix {
  QuantType type;
  uint32_t n_rows;
  uint32_t n_cols;
  std::vector<std::byte> file;
  std::vector<float> values;
  std::unique_ptr<Buffer> on_device;
  std::unique_ptr<Buffer> packed;

  MatrixView file_view() const {
    return {type, WeightLayout::file, n_rows, n_cols, on_device->data()};
  }
  MatrixView view() const { return {type, WeightLayout::packed, n_rows, n_cols, packed->data()}; }
  // Rows [first, first + count); first is a multiple of 16.
  MatrixView slice(uint32_t first, uint32_t count) const {
    MatrixView part = view();
    part.data += LinearOperator::packed_bytes(type, first, n_cols);
    part.n_rows = count;
    return part;
  }
};

class CudaLinear : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "SKIPPED: no CUDA device here";
    }
    linear_ = std::make_unique<LinearOperator>();
    workspace_ = std::make_unique<Buffer>(linear_->workspace_bytes());
    linear_->set_workspace(workspace_->data(), nullptr);
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  Matrix pack(QuantType type, uint32_t n_rows, uint32_t n_cols, std::vector<std::byte> file) {
    Matrix matrix{type, n_rows, n_cols, std::move(file), {}, nullptr, nullptr};
    matrix.values = dequantized(type, matrix.file, size_t{n_rows} * n_cols);
    matrix.on_device = std::make_unique<Buffer>(matrix.file);
    matrix.packed = std::make_unique<Buffer>(LinearOperator::packed_bytes(type, n_rows, n_cols));
    linear_->pack(matrix.file_view(), matrix.packed->data(), nullptr);
    return matrix;
  }
  Matrix random_matrix(QuantType type, uint32_t n_rows, uint32_t n_cols, Random& random) {
    return pack(type, n_rows, n_cols, random_blocks(type, size_t{n_rows} * n_cols, random));
  }

  std::vector<float> apply(const MatrixView& weight, const std::vector<float>& x) {
    LinearPart part;
    part.weight = weight;
    return apply_parts({part}, x);
  }
  // Parts side by side in one output, in their order.
  std::vector<float> apply_parts(std::vector<LinearPart> parts, const std::vector<float>& x) {
    const uint32_t n_cols = parts[0].weight.n_cols;
    const auto rows = static_cast<uint32_t>(x.size() / n_cols);
    uint32_t stride = 0;
    for (LinearPart& part : parts) {
      part.out_column = stride;
      stride += part.weight.n_rows;
    }
    const Buffer out = poisoned(size_t{rows} * stride);
    for (LinearPart& part : parts) {
      part.out = out.floats();
      part.out_stride = stride;
    }
    const Buffer input(x);
    const Buffer memory(LinearOperator::input_bytes(rows, n_cols));
    linear_->apply(
        linear_->prepare(input.floats(), rows, n_cols, memory.data(), nullptr), parts, nullptr);
    return out.read<float>();
  }

  std::unique_ptr<LinearOperator> linear_;
  std::unique_ptr<Buffer> workspace_;
};

}  // namespace nightsweep::cuda
