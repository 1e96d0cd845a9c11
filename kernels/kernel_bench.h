// Times of a device's operators, one by one, at the shapes of large models: what `nightsweep bench
// kernels` prints.
//
// Weights are random, and rotate over more memory than any cache holds. Calls follow each other
// without a wait and are timed by events of the device, the gaps between them included; the median
// of several runs counts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"

namespace nightsweep {

// A linear operator of a layer, or the output head.
struct BenchLinear {
  struct Part {
    QuantType type;
    uint32_t n_rows;
  };
  std::string name;  // "gate+up Q4_K"
  uint32_t n_cols = 0;
  std::vector<Part> parts;
  double calls = 0;  // a step: layers, or half of them where types alternate, or 1
};

struct BenchModel {
  std::string name;  // "8B Q4_K_M"
  uint32_t dim = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t ff_dim = 0;
  uint32_t n_layers = 0;
  uint32_t n_vocab = 0;
  std::vector<BenchLinear> linear;
};
// Llama 8B in Q4_K_M and Q8_0, 70B in Q4_K_M.
std::vector<BenchModel> bench_models();

struct KernelTime {
  std::string_view group;  // "linear", "attention", "small"
  std::string model;       // or the shape, of attention on its own
  std::string name;
  uint32_t rows = 0;
  double seconds = 0;  // a call
  double bytes = 0;    // that must cross memory: weights, keys and values; or what goes in and out
  double flops = 0;    // of linear
  double calls = 0;    // in a step of the model; 0: it is no part of one
};

// What a step of decoding is made of, each operator timed alone.
struct StepShare {
  std::string model;
  uint32_t rows = 0;
  double linear_s = 0;
  double attention_s = 0;
  double small_s = 0;  // norms, RoPE and store, SwiGLU, gathering, the choice
  double share_of_small() const { return small_s / (linear_s + attention_s + small_s); }
};

struct KernelBenchOptions {
  std::vector<uint32_t> rows;     // at once
  uint32_t context_tokens = 160;  // of the attention in a step
  size_t rotated_bytes = size_t{400} << 20;
  double least_s = 0.01;  // of one run
};

class KernelBenchSink {
 public:
  virtual ~KernelBenchSink() = default;
  virtual void take(const KernelTime& time) = 0;
  virtual void take(const StepShare& share) = 0;
};

// All operators of a model at each number of rows, then the shares of a step. Needs memory for
// rotated_bytes and twice the largest matrix.
void bench_model(
    Device& device,
    const BenchModel& model,
    const KernelBenchOptions& options,
    KernelBenchSink& sink);

// One row a sequence, each on pages of its own in random order. The output becomes the input of the
// linear operator, as in a step: the device has room for it.
struct BenchAttention {
  uint32_t n_sequences = 0;
  uint32_t context_tokens = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
};
std::vector<BenchAttention> bench_attention_cases();
KernelTime bench_attention(
    Device& device,
    const BenchAttention& shape,
    KvType type,
    const KernelBenchOptions& options);

}  // namespace nightsweep
