#include "kernels/kernel_bench.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr int kRuns = 5;
constexpr uint32_t kPatternRows = 1024;  // of a random matrix; then the same again
constexpr size_t kMostCopies = 40;

// Seconds of call(0), call(1), ...
double seconds_a_call(
    Device& device,
    const KernelBenchOptions& options,
    const std::function<void(size_t)>& call) {
  auto begin = device.make_timed_event();
  auto end = device.make_timed_event();
  const auto run = [&](size_t n_calls) {
    device.record(*begin, WorkQueue::operators);
    for (size_t i = 0; i < n_calls; ++i)
      call(i);
    device.record(*end, WorkQueue::operators);
    device.wait(*end);
    return device.seconds_between(*begin, *end);
  };
  run(1);  // the first call also warms up
  constexpr size_t kTrial = 4;
  const double trial_s = std::max(run(kTrial) / kTrial, 1e-7);
  const auto n_calls =
      std::clamp<size_t>(static_cast<size_t>(options.least_s / trial_s), 1, size_t{1} << 16);
  std::array<double, kRuns> times{};
  for (double& time : times)
    time = run(n_calls) / static_cast<double>(n_calls);
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return times[kRuns / 2];
}

// Blocks of random bits with scales that a model could have. Quantized types only.
void fill_rows(QuantType type, std::span<std::byte> rows, std::mt19937& random) {
  for (std::byte& byte : rows)
    byte = static_cast<std::byte>(random());
  const bool has_minimum = type == QuantType::q4_1 || type == QuantType::q5_1 ||
                           type == QuantType::q4_k || type == QuantType::q5_k;
  const uint16_t scale = float_to_half(0.0004F);
  for (size_t at = 0; at < rows.size(); at += quant_traits(type).block_bytes) {
    std::byte* const block = rows.data() + at;
    constexpr size_t kQ6KScale = 208;
    std::memcpy(block + (type == QuantType::q6_k ? kQ6KScale : 0), &scale, sizeof scale);
    if (has_minimum) std::memcpy(block + 2, &scale, sizeof scale);
  }
}

class Floats {
 public:
  Floats(Device& device, size_t count, std::mt19937& random)
      : memory_(device.allocate(count * sizeof(float))) {
    constexpr size_t kDrawn = size_t{1} << 16;
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = i < kDrawn ? normal(random) : values[i - kDrawn];
    device.upload(values.data(), count * sizeof(float), memory_->data());
  }
  float* data() { return memory_->floats(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

// Copies of one operator's matrices, enough that none is in a cache when its turn comes again.
class Weights {
 public:
  Weights(Device& device, const BenchLinear& shape, size_t rotated_bytes) : shape_(shape) {
    for (const BenchLinear::Part& part : shape.parts)
      bytes_ += device.packed_bytes(part.type, part.n_rows, shape.n_cols);
    const size_t n_copies = std::min(kMostCopies, rotated_bytes / bytes_ + 1);
    std::mt19937 random(1);
    for (size_t copy = 0; copy < n_copies; ++copy) {
      for (const BenchLinear::Part& part : shape.parts)
        matrices_.push_back(make(device, part, random));
    }
    device.synchronize();
  }

  size_t size_bytes() const { return bytes_; }
  uint32_t n_outputs() const {
    uint32_t n = 0;
    for (const BenchLinear::Part& part : shape_.parts)
      n += part.n_rows;
    return n;
  }
  // Of call `i`: outputs side by side.
  std::vector<LinearPart> parts(size_t i, float* out) const {
    std::vector<LinearPart> parts;
    const size_t n = shape_.parts.size();
    const size_t first = i % (matrices_.size() / n) * n;
    uint32_t column = 0;
    for (size_t p = 0; p < n; ++p) {
      LinearPart& part = parts.emplace_back();
      part.weight = {
          .type = shape_.parts[p].type,
          .layout = WeightLayout::packed,
          .n_rows = shape_.parts[p].n_rows,
          .n_cols = shape_.n_cols,
          .data = matrices_[first + p]->data()};
      part.out = out;
      part.out_stride = n_outputs();
      part.out_column = column;
      column += shape_.parts[p].n_rows;
    }
    return parts;
  }

 private:
  std::unique_ptr<DeviceMemory>
  make(Device& device, const BenchLinear::Part& part, std::mt19937& random) {
    const size_t row_bytes = quant_bytes(part.type, shape_.n_cols);
    const uint32_t n_pattern = std::min(kPatternRows, part.n_rows);
    auto pattern = device.allocate_host(n_pattern * row_bytes);
    fill_rows(part.type, std::span(pattern->data(), n_pattern * row_bytes), random);
    auto packed = device.allocate(device.packed_bytes(part.type, part.n_rows, shape_.n_cols));
    for (uint32_t row = 0; row < part.n_rows; row += n_pattern) {
      device.pack(
          {.type = part.type,
           .layout = WeightLayout::file,
           .n_rows = std::min(n_pattern, part.n_rows - row),
           .n_cols = shape_.n_cols,
           .data = pattern->data()},
          packed->data() + device.packed_bytes(part.type, row, shape_.n_cols));
    }
    device.synchronize();  // `pattern` goes
    return packed;
  }

  const BenchLinear& shape_;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<DeviceMemory>> matrices_;
};

// A step of one row a sequence, all contexts of one length.
class DecodeStep {
 public:
  DecodeStep(uint32_t n_sequences, uint32_t context_tokens)
      : pages_an_sequence_((context_tokens + kKvPageTokens - 1) / kKvPageTokens),
        pages_(size_t{pages_an_sequence_} * n_sequences),
        positions_(n_sequences, context_tokens - 1),
        sequences_(n_sequences) {
    std::iota(pages_.begin(), pages_.end(), 0);
    std::ranges::shuffle(pages_, std::mt19937(1));
    std::iota(sequences_.begin(), sequences_.end(), 0);
    for (uint32_t s = 0; s < n_sequences; ++s)
      tables_.emplace_back(pages_.data() + size_t{s} * pages_an_sequence_, pages_an_sequence_);
  }
  size_t n_pages() const { return pages_.size(); }
  StepRows rows() const { return {positions_, sequences_, tables_}; }

 private:
  uint32_t pages_an_sequence_;
  std::vector<uint32_t> pages_;
  std::vector<uint32_t> positions_;
  std::vector<uint32_t> sequences_;
  std::vector<std::span<const uint32_t>> tables_;
};

// Layers of pages, enough that none is in a cache when its turn comes again. Bytes that are sound
// numbers whatever they are read as.
class Pages {
 public:
  Pages(Device& device, const KvShape& shape, size_t n_pages, size_t rotated_bytes)
      : shape_(shape),
        page_bytes_(device.kv_page_bytes(shape)),
        layer_bytes_(page_bytes_ * n_pages) {
    n_layers_ = std::clamp<size_t>(rotated_bytes / layer_bytes_ + 1, 2, 64);
    memory_ = device.allocate(layer_bytes_ * n_layers_);
    constexpr size_t kDrawn = size_t{1} << 20;
    std::mt19937 random(1);
    std::vector<std::byte> bytes(layer_bytes_);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = i >= kDrawn ? bytes[i - kDrawn]
                             : static_cast<std::byte>(i % 2 == 0 ? random() : random() % 4 + 0x2C);
    }
    for (size_t layer = 0; layer < n_layers_; ++layer)
      device.upload(bytes.data(), bytes.size(), memory_->data() + layer * layer_bytes_);
  }
  KvLayer layer(size_t i) const {
    return {
        .shape = shape_,
        .pages = memory_->data() + i % n_layers_ * layer_bytes_,
        .page_bytes = page_bytes_};
  }

 private:
  KvShape shape_;
  size_t page_bytes_;
  size_t layer_bytes_;
  size_t n_layers_ = 0;
  std::unique_ptr<DeviceMemory> memory_;
};

// Everything of a model's step but the linear operators, at one number of rows.
class ModelBench {
 public:
  ModelBench(Device& device, const BenchModel& model, const KernelBenchOptions& options)
      : device_(device), model_(model), options_(options), random_(1) {}

  void run(uint32_t rows, double linear_s, KernelBenchSink& sink) {
    StepShare share{.model = model_.name, .rows = rows, .linear_s = linear_s};
    for (const KernelTime& time : small(rows)) {
      share.small_s += time.seconds * time.calls;
      sink.take(time);
    }
    KernelTime time = bench_attention(
        device_,
        {.n_sequences = rows,
         .context_tokens = options_.context_tokens,
         .n_heads = model_.n_heads,
         .n_kv_heads = model_.n_kv_heads,
         .head_dim = model_.head_dim},
        KvType::f16, options_);
    time.model = model_.name;
    time.calls = model_.n_layers;
    share.attention_s = time.seconds * time.calls;
    sink.take(time);
    sink.take(share);
  }

 private:
  std::vector<KernelTime> small(uint32_t rows) {
    const size_t q_dim = size_t{model_.n_heads} * model_.head_dim;
    const size_t kv_dim = size_t{model_.n_kv_heads} * model_.head_dim;
    const DecodeStep step(rows, options_.context_tokens);
    const KvShape kv{KvType::f16, model_.n_kv_heads, model_.head_dim};
    const Pages pages(device_, kv, step.n_pages(), 0);
    Floats x(device_, size_t{rows} * std::max<size_t>(q_dim, model_.dim), random_);
    Floats q(device_, rows * q_dim, random_);
    Floats k(device_, rows * kv_dim, random_);
    Floats v(device_, rows * kv_dim, random_);
    Floats weight(device_, model_.dim, random_);
    Floats gate(device_, size_t{rows} * model_.ff_dim, random_);
    Floats up(device_, size_t{rows} * model_.ff_dim, random_);
    Floats logits(device_, size_t{rows} * model_.n_vocab, random_);
    std::vector<double> frequencies(model_.head_dim / 2);
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = 1.0 / static_cast<double>(i + 1);
    RopeShape q_rope{
        .n_heads = model_.n_heads,
        .head_dim = model_.head_dim,
        .n_rot = model_.head_dim,
        .frequencies = frequencies};
    RopeShape k_rope = q_rope;
    k_rope.n_heads = model_.n_kv_heads;
    std::vector<uint32_t> row_numbers(rows);
    std::iota(row_numbers.begin(), row_numbers.end(), 0);

    std::vector<KernelTime> times;
    const double layers = model_.n_layers;
    const auto add = [&](const char* name, double calls, size_t floats_a_row, const auto& call) {
      times.push_back(
          {.group = "small",
           .model = model_.name,
           .name = name,
           .rows = rows,
           .seconds = seconds_a_call(device_, options_, [&](size_t) { call(); }),
           .bytes = static_cast<double>(floats_a_row) * rows * sizeof(float),
           .calls = calls});
    };
    device_.begin_step(step.rows());
    add("norm", 2 * layers + 1, 2 * size_t{model_.dim},
        [&] { device_.norm_input(x.data(), weight.data(), 1e-5F, rows, model_.dim, x.data()); });
    add("rope+store", layers, 2 * q_dim + 2 * kv_dim, [&] {
      device_.rope_and_store(q_rope, k_rope, pages.layer(0), q.data(), k.data(), v.data());
    });
    add("swiglu", layers, size_t{model_.ff_dim} * 5 / 2,
        [&] { device_.gate_input(gate.data(), up.data(), rows, model_.ff_dim, gate.data()); });
    add("gather", 1, 2 * size_t{model_.dim},
        [&] { device_.gather_rows(x.data(), row_numbers, model_.dim, q.data()); });
    if (device_.can_pick()) {
      std::vector<PickRow> picks(rows);
      for (uint32_t row = 0; row < rows; ++row)
        picks[row] = {.row = row, .inverse_temperature = 1, .top_p = 0.95, .uniform = 0.5};
      std::vector<Pick> picked(rows);
      add("pick", 1, model_.n_vocab,
          [&] { device_.pick(logits.data(), model_.n_vocab, picks, picked); });
    }
    return times;
  }

  Device& device_;
  const BenchModel& model_;
  const KernelBenchOptions& options_;
  std::mt19937 random_;
};

KernelTime bench_linear(
    Device& device,
    const BenchModel& model,
    const BenchLinear& shape,
    const Weights& weights,
    uint32_t rows,
    const KernelBenchOptions& options) {
  std::mt19937 random(rows);
  Floats x(device, size_t{rows} * shape.n_cols, random);
  Floats out(device, size_t{rows} * weights.n_outputs(), random);
  device.set_input(x.data(), rows, shape.n_cols);
  return {
      .group = "linear",
      .model = model.name,
      .name = shape.name,
      .rows = rows,
      .seconds = seconds_a_call(
          device, options, [&](size_t i) { device.linear(weights.parts(i, out.data())); }),
      .bytes = static_cast<double>(weights.size_bytes()),
      .flops = 2.0 * rows * shape.n_cols * weights.n_outputs(),
      .calls = shape.calls};
}

BenchModel llama(
    std::string name,
    uint32_t dim,
    uint32_t n_heads,
    uint32_t ff_dim,
    uint32_t n_layers,
    bool is_mixed) {
  constexpr uint32_t kHeadDim = 128;
  constexpr uint32_t kKvDim = 1024;
  constexpr uint32_t kVocabulary = 128256;
  constexpr QuantType k4 = QuantType::q4_k;
  constexpr QuantType k6 = QuantType::q6_k;
  constexpr QuantType k8 = QuantType::q8_0;
  BenchModel model{
      .name = std::move(name),
      .dim = dim,
      .n_heads = n_heads,
      .n_kv_heads = kKvDim / kHeadDim,
      .head_dim = kHeadDim,
      .ff_dim = ff_dim,
      .n_layers = n_layers,
      .n_vocab = kVocabulary,
      .linear = {}};
  const double layers = n_layers;
  if (is_mixed) {  // Q4_K_M: in half of the layers v and down are Q6_K
    model.linear = {
        {"qkv Q4_K", dim, {{k4, dim}, {k4, kKvDim}, {k4, kKvDim}}, layers / 2},
        {"qk Q4_K, v Q6_K", dim, {{k4, dim}, {k4, kKvDim}, {k6, kKvDim}}, layers / 2},
        {"o Q4_K", dim, {{k4, dim}}, layers},
        {"gate+up Q4_K", dim, {{k4, ff_dim}, {k4, ff_dim}}, layers},
        {"down Q4_K", ff_dim, {{k4, dim}}, layers / 2},
        {"down Q6_K", ff_dim, {{k6, dim}}, layers / 2},
        {"head Q6_K", dim, {{k6, kVocabulary}}, 1}};
  } else {
    model.linear = {
        {"qkv Q8_0", dim, {{k8, dim}, {k8, kKvDim}, {k8, kKvDim}}, layers},
        {"o Q8_0", dim, {{k8, dim}}, layers},
        {"gate+up Q8_0", dim, {{k8, ff_dim}, {k8, ff_dim}}, layers},
        {"down Q8_0", ff_dim, {{k8, dim}}, layers},
        {"head Q8_0", dim, {{k8, kVocabulary}}, 1}};
  }
  return model;
}

}  // namespace

std::vector<BenchModel> bench_models() {
  return {
      llama("8B Q4_K_M", 4096, 32, 14336, 32, true), llama("8B Q8_0", 4096, 32, 14336, 32, false),
      llama("70B Q4_K_M", 8192, 64, 28672, 80, true)};
}

std::vector<BenchAttention> bench_attention_cases() {
  return {{64, 4096, 64, 8, 128}, {1, 2048, 64, 8, 128},  {16, 2048, 64, 8, 128},
          {256, 160, 32, 8, 128}, {1, 160, 32, 8, 128},   {4, 131072, 64, 8, 128},
          {64, 4096, 32, 8, 64},  {16, 4096, 16, 16, 256}};
}

KernelTime bench_attention(
    Device& device,
    const BenchAttention& shape,
    KvType type,
    const KernelBenchOptions& options) {
  const DecodeStep step(shape.n_sequences, shape.context_tokens);
  const KvShape kv{type, shape.n_kv_heads, shape.head_dim};
  const Pages pages(device, kv, step.n_pages(), options.rotated_bytes);
  std::mt19937 random(1);
  const size_t n_floats = size_t{shape.n_sequences} * shape.n_heads * shape.head_dim;
  Floats q(device, n_floats, random);
  Floats out(device, n_floats, random);
  device.begin_step(step.rows());
  constexpr float kScale = 0.088F;
  return {
      .group = "attention",
      .model = format(
          "{}/{} heads of {}, context {}", shape.n_heads, shape.n_kv_heads, shape.head_dim,
          shape.context_tokens),
      .name = kv_type_name(type),
      .rows = shape.n_sequences,
      .seconds = seconds_a_call(
          device, options,
          [&](size_t i) {
            device.attention_input(
                pages.layer(i), q.data(), shape.n_sequences, shape.n_heads, kScale, out.data());
          }),
      .bytes = static_cast<double>(device.kv_page_bytes(kv)) / kKvPageTokens * shape.n_sequences *
               shape.context_tokens,
      .calls = 0};
}

void bench_model(
    Device& device,
    const BenchModel& model,
    const KernelBenchOptions& options,
    KernelBenchSink& sink) {
  std::vector<double> linear_s(options.rows.size());
  for (const BenchLinear& shape : model.linear) {
    const Weights weights(device, shape, options.rotated_bytes);
    for (size_t i = 0; i < options.rows.size(); ++i) {
      const KernelTime time = bench_linear(device, model, shape, weights, options.rows[i], options);
      linear_s[i] += time.seconds * time.calls;
      sink.take(time);
    }
  }
  ModelBench others(device, model, options);
  for (size_t i = 0; i < options.rows.size(); ++i)
    others.run(options.rows[i], linear_s[i], sink);
}

}  // namespace nightsweep
