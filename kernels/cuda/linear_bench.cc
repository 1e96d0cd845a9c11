#include "kernels/cuda/linear_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/linear.h"

namespace nightsweep::cuda {
namespace {

constexpr size_t kRotatedBytes = size_t{400} << 20;  // well above any second-level cache
constexpr uint32_t kMostCalls = 40;
constexpr uint32_t kReplays = 5;
constexpr uint32_t kPatternRows = 64;
constexpr std::array kRowCounts = {1U, 2U, 8U, 16U, 32U, 64U, 128U, 256U, 512U};

struct BenchPart {
  QuantType type;
  uint32_t n_rows;
};
struct BenchShape {
  const char* name;
  uint32_t n_cols;
  std::vector<BenchPart> parts;
};

const std::vector<BenchShape>& shapes() {
  constexpr QuantType k4 = QuantType::q4_k;
  constexpr QuantType k6 = QuantType::q6_k;
  constexpr QuantType k8 = QuantType::q8_0;
  static const std::vector<BenchShape> kShapes = {
      {"70B up Q4_K", 8192, {{k4, 28672}}},
      {"70B down Q4_K", 28672, {{k4, 8192}}},
      {"70B down Q6_K", 28672, {{k6, 8192}}},
      {"70B o Q4_K", 8192, {{k4, 8192}}},
      {"70B qkv Q4_K", 8192, {{k4, 8192}, {k4, 1024}, {k4, 1024}}},
      {"70B qk Q4_K v Q6_K", 8192, {{k4, 8192}, {k4, 1024}, {k6, 1024}}},
      {"70B gate+up Q4_K", 8192, {{k4, 28672}, {k4, 28672}}},
      {"70B head Q6_K", 8192, {{k6, 128256}}},
      {"70B up Q8_0", 8192, {{k8, 28672}}},
      {"8B qkv Q4_K", 4096, {{k4, 4096}, {k4, 1024}, {k4, 1024}}},
      {"8B o Q4_K", 4096, {{k4, 4096}}},
      {"8B gate+up Q4_K", 4096, {{k4, 14336}, {k4, 14336}}},
      {"8B down Q4_K", 14336, {{k4, 4096}}},
      {"8B down Q6_K", 14336, {{k6, 4096}}},
      {"8B head Q6_K", 4096, {{k6, 128256}}},
      {"8B qkv Q8_0", 4096, {{k8, 4096}, {k8, 1024}, {k8, 1024}}},
      {"8B o Q8_0", 4096, {{k8, 4096}}},
      {"8B gate+up Q8_0", 4096, {{k8, 14336}, {k8, 14336}}},
      {"8B down Q8_0", 14336, {{k8, 4096}}},
      {"8B head Q8_0", 4096, {{k8, 128256}}},
  };
  return kShapes;
}

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  fail(ErrorKind::device, "CUDA bench: {} failed: {}", doing, cudaGetErrorString(status));
}

class Buffer {
 public:
  explicit Buffer(size_t size_bytes) { check(cudaMalloc(&data_, size_bytes), "allocation"); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

// Blocks of random bits with sane scales.
std::vector<std::byte> random_rows(QuantType type, uint32_t n_cols, std::mt19937& random) {
  std::vector<std::byte> bytes(quant_bytes(type, size_t{n_cols} * kPatternRows));
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  const uint16_t scale = float_to_half(0.0004F);
  const uint32_t block_bytes = quant_traits(type).block_bytes;
  for (size_t at = 0; at < bytes.size(); at += block_bytes) {
    std::byte* const block = bytes.data() + at;
    if (type == QuantType::q6_k) {
      std::memcpy(block + 208, &scale, sizeof scale);
    } else {
      std::memcpy(block, &scale, sizeof scale);
      if (type == QuantType::q4_k) std::memcpy(block + 2, &scale, sizeof scale);
    }
  }
  return bytes;
}

class ShapeBench {
 public:
  ShapeBench(const BenchShape& shape, LinearOperator& linear, cudaStream_t stream)
      : shape_(&shape), linear_(&linear), stream_(stream) {
    std::mt19937 random(1);
    size_t bytes = 0;
    for (const BenchPart& part : shape.parts)
      bytes += LinearOperator::packed_bytes(part.type, part.n_rows, shape.n_cols);
    n_copies_ = static_cast<uint32_t>(
        std::min<size_t>(kMostCalls, kRotatedBytes / std::max<size_t>(bytes, 1) + 2));
    for (uint32_t copy = 0; copy < n_copies_; ++copy) {
      for (const BenchPart& part : shape.parts)
        weights_.push_back(make_weight(part, random));
    }
    bytes_ = bytes;
  }

  size_t size_bytes() const { return bytes_; }

  double microseconds(uint32_t rows) {
    std::mt19937 random(rows);
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t{rows} * shape_->n_cols);
    for (float& value : x)
      value = normal(random) * (random() % 1000 == 0 ? 20.0F : 1.0F);
    uint32_t n_outputs = 0;
    for (const BenchPart& part : shape_->parts)
      n_outputs += part.n_rows;
    const Buffer on_device(x.size() * sizeof(float));
    check(
        cudaMemcpy(on_device.data(), x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice),
        "copy");
    const Buffer memory(LinearOperator::input_bytes(rows, shape_->n_cols));
    const Buffer out(size_t{rows} * n_outputs * sizeof(float));
    const PreparedInput input =
        linear_->prepare(on_device.floats(), rows, shape_->n_cols, memory.data(), stream_);

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (uint32_t copy = 0; copy < n_copies_; ++copy) {
      std::vector<LinearPart> parts;
      uint32_t column = 0;
      for (size_t i = 0; i < shape_->parts.size(); ++i) {
        LinearPart part;
        part.weight = {
            shape_->parts[i].type, WeightLayout::packed, shape_->parts[i].n_rows, shape_->n_cols,
            weights_[copy * shape_->parts.size() + i]->data()};
        part.out = out.floats();
        part.out_stride = n_outputs;
        part.out_column = column;
        column += part.weight.n_rows;
        parts.push_back(part);
      }
      linear_->apply(input, parts, stream_);
    }
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (uint32_t replay = 0; replay <= kReplays; ++replay) {
      check(cudaEventRecord(begin, stream_), "event");
      check(cudaGraphLaunch(executable, stream_), "graph");
      check(cudaEventRecord(end, stream_), "event");
      check(cudaEventSynchronize(end), "run");
      float milliseconds = 0.0F;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
      if (replay > 0) times.push_back(milliseconds);
    }
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return 1000.0 * static_cast<double>(times[kReplays / 2]) / n_copies_;
  }

 private:
  std::unique_ptr<Buffer> make_weight(const BenchPart& part, std::mt19937& random) {
    const size_t row_bytes = quant_bytes(part.type, shape_->n_cols);
    const std::vector<std::byte> pattern = random_rows(part.type, shape_->n_cols, random);
    const Buffer file(row_bytes * part.n_rows);
    for (uint32_t row = 0; row < part.n_rows; row += kPatternRows) {
      const uint32_t count = std::min(kPatternRows, part.n_rows - row);
      check(
          row == 0
              ? cudaMemcpy(file.data(), pattern.data(), count * row_bytes, cudaMemcpyHostToDevice)
              : cudaMemcpyAsync(
                    file.data() + row * row_bytes, file.data(), count * row_bytes,
                    cudaMemcpyDeviceToDevice, stream_),
          "copy");
    }
    auto packed = std::make_unique<Buffer>(
        LinearOperator::packed_bytes(part.type, part.n_rows, shape_->n_cols));
    linear_->pack(
        {part.type, WeightLayout::file, part.n_rows, shape_->n_cols, file.data()}, packed->data(),
        stream_);
    check(cudaStreamSynchronize(stream_), "packing");
    return packed;
  }

  const BenchShape* shape_;
  LinearOperator* linear_;
  cudaStream_t stream_;
  uint32_t n_copies_ = 0;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<Buffer>> weights_;
};

}  // namespace

void run_linear_bench(const LinearBenchOptions& options, std::FILE* out) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  LinearOptions linear_options;
  linear_options.allow_wide = options.allow_wide;
  if (options.tile >= 0) linear_options.tile = static_cast<TileShape>(options.tile);
  LinearOperator linear(linear_options);
  const Buffer workspace(linear.workspace_bytes());
  linear.set_workspace(workspace.data(), stream);
  std::fprintf(out, "%-20s %6s", "us a call, rows", "MB");
  for (const uint32_t rows : kRowCounts)
    std::fprintf(out, " %7u", rows);
  std::fprintf(out, "\n");
  for (const BenchShape& shape : shapes()) {
    if (std::string(shape.name).find(options.shape) == std::string::npos) continue;
    ShapeBench bench(shape, linear, stream);
    std::fprintf(out, "%-20s %6.1f", shape.name, static_cast<double>(bench.size_bytes()) / 1e6);
    for (const uint32_t rows : kRowCounts) {
      if (options.n_rows != 0 && options.n_rows != rows) continue;
      std::fprintf(out, " %7.1f", bench.microseconds(rows));
      std::fflush(out);
    }
    std::fprintf(out, "\n");
  }
  cudaStreamDestroy(stream);
}

}  // namespace nightsweep::cuda
