// Matrices on a CUDA device and the linear operator applied to them, for its tests.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

// For a prepared input. Rows that nobody writes are read beside those that are, and may not matter.
inline Buffer room_for_input(uint32_t rows, uint32_t n_cols) {
  return poisoned(LinearOperator::input_bytes(rows, n_cols) / sizeof(float));
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
    const Buffer memory = room_for_input(rows, n_cols);
    linear_->apply(
        linear_->prepare(input.floats(), rows, n_cols, memory.data(), nullptr), parts, nullptr);
    return out.read<float>();
  }

  // Runs `body` with another operator in the place of linear_.
  template <typename Body>
  void with_operator(const LinearOptions& options, const Body& body) {
    auto other = std::make_unique<LinearOperator>(options);
    other->set_workspace(workspace_->data(), nullptr);
    std::swap(linear_, other);
    body();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::swap(linear_, other);
  }

  std::unique_ptr<LinearOperator> linear_;
  std::unique_ptr<Buffer> workspace_;
  friend class LayerChain;
};

// q, k (Q4_K) and v (Q6_K) of one input, again and again: the outputs side by side are normed to be
// the next input. In a stream of its own. A wide matrix (Q4_K), whose outputs go nowhere, comes
// before q: so v is long done when q and k end, and who waits for v alone is too early.
class LayerChain {
 public:
  static constexpr uint32_t kCols = 768;
  static constexpr uint32_t kLinks = 6;

  LayerChain(CudaLinear& on, Random& random, uint32_t n_wide)
      : on_(on), norm_values_(random.normals(kCols)), norm_(norm_values_) {
    wide_.push_back(on.random_matrix(QuantType::q4_k, n_wide, kCols, random));
    matrices_.push_back(on.random_matrix(QuantType::q4_k, 512, kCols, random));
    matrices_.push_back(on.random_matrix(QuantType::q4_k, 128, kCols, random));
    matrices_.push_back(on.random_matrix(QuantType::q6_k, 128, kCols, random));
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~LayerChain() { cudaStreamDestroy(stream_); }
  LayerChain(const LayerChain&) = delete;
  LayerChain& operator=(const LayerChain&) = delete;

  // The outputs of all links, the first one's first; waits for each kernel, or for the last.
  std::vector<float> run(const std::vector<float>& x, WeightAge age, bool waits) {
    const auto rows = static_cast<uint32_t>(x.size() / kCols);
    const Buffer input(x);
    const Buffer memory = room_for_input(rows, kCols);
    const Buffer out = poisoned(size_t{kLinks} * rows * kCols);
    const Buffer nowhere = poisoned(size_t{rows} * wide_[0].n_rows);
    on_.linear_->set_workspace(on_.workspace_->data(), stream_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto wait = [&] {
      if (!waits) return;
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    };
    const float* from = input.floats();
    for (uint32_t link = 0; link < kLinks; ++link) {
      float* const to = out.floats() + size_t{link} * rows * kCols;
      std::vector<LinearPart> parts(1);
      parts[0].weight = wide_[0].view();
      parts[0].out = nowhere.floats();
      parts[0].out_stride = wide_[0].n_rows;
      uint32_t column = 0;
      for (const Matrix& matrix : matrices_) {
        LinearPart& part = parts.emplace_back();
        part.weight = matrix.view();
        part.out = to;
        part.out_stride = kCols;
        part.out_column = column;
        column += matrix.n_rows;
      }
      const PreparedInput prepared = on_.linear_->prepare_rms_norm(
          from, norm_.floats(), 1e-5F, rows, kCols, nullptr, memory.data(), stream_);
      wait();
      on_.linear_->apply(prepared, parts, stream_, age);
      wait();
      from = to;
    }
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return out.read<float>();
  }

  // Of the first link against double: the relative error of all outputs together.
  double error(const std::vector<float>& x, const std::vector<float>& found) const {
    double error = 0;
    double size = 0;
    for (size_t row = 0; row < x.size() / kCols; ++row) {
      const float* const values = x.data() + row * kCols;
      double sum = 0;
      for (size_t i = 0; i < kCols; ++i)
        sum += double{values[i]} * double{values[i]};
      const double inverse = 1.0 / std::sqrt(sum / kCols + 1e-5);
      size_t column = 0;
      for (const Matrix& matrix : matrices_) {
        for (uint32_t output = 0; output < matrix.n_rows; ++output, ++column) {
          double expected = 0;
          for (size_t i = 0; i < kCols; ++i) {
            expected += double{values[i]} * inverse * double{norm_values_[i]} *
                        double{matrix.values[output * kCols + i]};
          }
          const double difference = expected - double{found[row * kCols + column]};
          error += difference * difference;
          size += expected * expected;
        }
      }
    }
    return std::sqrt(error / size);
  }

 private:
  CudaLinear& on_;
  std::vector<Matrix> wide_;
  std::vector<Matrix> matrices_;
  std::vector<float> norm_values_;
  Buffer norm_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace nightsweep::cuda
