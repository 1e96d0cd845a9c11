// The llama architecture: Llama 1 to 3.x, SmolLM2, Mistral and what shares their graph.
//
//   x += Wo attention(rope(Wq norm(x)), rope(Wk norm(x)), Wv norm(x))
//   x += Wdown (silu(Wgate norm(x)) * Wup norm(x))
//
// Tensor names and shapes: GGUF's naming, checked by check_llama_tensors().
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/llama_tensors.h"
#include "engine/model.h"
#include "engine/models/llama_groups.h"

namespace nightsweep {

namespace {

// Where the outputs of one matrix of a group go.
struct GroupOutput {
  float* out = nullptr;  // (rows, stride)
  uint32_t stride = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

struct Layer {
  std::unique_ptr<DeviceMemory> attention_norm;  // (dim)
  std::unique_ptr<DeviceMemory> ff_norm;         // (dim)
  LlamaLayerGroups groups;
  // Null where the file has none.
  std::unique_ptr<DeviceMemory> q_bias, k_bias, v_bias, out_bias, gate_bias, up_bias, down_bias;
};

// Rows [first, first + n) of a step, worked on at once.
struct RowBatch {
  uint32_t first = 0;
  uint32_t n = 0;
  float* of(DeviceMemory& memory, uint32_t dim) const {
    return memory.floats() + size_t{first} * dim;
  }
};

// The weights of consecutive groups in the order of a sweep. For several batches of rows all slices
// are held together; for one each only as long as it is used.
class PassingWeights {
 public:
  PassingWeights(WeightStream& stream, const WeightWindow& window, bool is_for_batches)
      : stream_(stream), first_slice_(window.first_slice) {
    if (!is_for_batches) return;
    held_.reserve(window.n_slices);
    for (uint32_t i = 0; i < window.n_slices; ++i)
      held_.push_back(stream.acquire(first_slice_ + i));
  }
  // use(its matrices)
  template <typename Use>
  void with(uint32_t slice, const Use& use) {
    if (held_.empty()) {
      const WeightStream::Lease lease = stream_.acquire(slice);
      use(lease.matrices());
    } else {
      use(held_[slice - first_slice_].matrices());
    }
  }

 private:
  WeightStream& stream_;
  uint32_t first_slice_;
  std::vector<WeightStream::Lease> held_;
};

const float* floats_or_null(const std::unique_ptr<DeviceMemory>& memory) {
  return memory == nullptr ? nullptr : memory->floats();
}

class Llama final : public Model {
 public:
  Llama(
      const GgufModel& gguf,
      const ModelConfig& config,
      Device& device,
      const ModelOptions& options)
      : config_(config),
        device_(device),
        verifies_(options.verify_numerics),
        rows_at_once_(options.limits.rows_at_once()),
        tensors_(check_llama_tensors(gguf, config)),
        reader_(gguf),
        embedding_(*tensors_.token_embd, reader_, device, options),
        q_dim_(config.n_heads * config.head_dim),
        kv_dim_(config.n_kv_heads * config.head_dim) {
    LlamaGroups groups = cut_llama(tensors_, config, options.max_slice_bytes);
    slices_ = std::move(groups.slices);
    head_ = std::move(groups.head);
    for (size_t i = 0; i < groups.layers.size(); ++i) {
      layers_.push_back(load_layer(tensors_.layers[i], std::move(groups.layers[i])));
    }
    output_norm_ = load_floats(*tensors_.output_norm, reader_, device_);
    reader_.check_files();
    make_scratch(options.limits);
  }

  const WeightPlan& weight_plan() const override { return slices_.plan; }

  float* forward(WeightStream& stream, const KvCache& kv, const Step& step) override {
    cut_into_batches(step.n_rows());
    if (batches_.size() == 1) device_.begin_step(step.rows(0, step.n_rows()));
    embedding_.lookup(step.tokens, x_->floats());
    if (verifies_) faults_.assign(step.n_rows(), {});
    look_for_faults({.place = NumericFault::Place::embedding});
    for (uint32_t index = 0; index < config_.n_layers; ++index) {
      const Layer& layer = layers_[index];
      attend(stream, kv.layer(index), step, layer);
      feed_forward(stream, layer);
      look_for_faults({.place = NumericFault::Place::layer, .layer = index});
    }
    auto n_logits = static_cast<uint32_t>(step.logit_rows.size());
    if (n_logits > 0) {
      device_.gather_rows(x_->floats(), step.logit_rows, config_.dim, last_->floats());
      set_normed_input(last_->floats(), *output_norm_, n_logits, last_->floats());
    }
    PassingWeights weights(stream, {}, false);
    apply(weights, head_, {{.out = logits_->floats(), .stride = config_.n_vocab}}, n_logits > 0);
    return logits_->floats();
  }

  void check_files() const override {
    if (embedding_.reads_file()) reader_.check_files();
  }

  std::span<const NumericFault> numeric_faults() const override { return faults_; }

 private:
  // As few as may be. A step without rows is one batch of none: its weights pass all the same.
  void cut_into_batches(uint32_t rows) {
    batches_.clear();
    uint32_t first = 0;
    do {
      batches_.push_back({.first = first, .n = std::min(rows - first, rows_at_once_)});
      first += batches_.back().n;
    } while (first < rows);
  }

  // Notes `here` for the rows of x that are no longer finite and were until now.
  void look_for_faults(NumericFault here) {
    if (!verifies_) return;
    for (const RowBatch& rows : batches_) {
      const float* x =
          device_.read_back(rows.of(*x_, config_.dim), static_cast<size_t>(rows.n) * config_.dim);
      for (uint32_t row = rows.first; row < rows.first + rows.n; ++row, x += config_.dim) {
        const bool is_sound =
            std::all_of(x, x + config_.dim, [](float value) { return std::isfinite(value); });
        if (!is_sound && faults_[row].place == NumericFault::Place::none) faults_[row] = here;
      }
    }
  }

  std::unique_ptr<DeviceMemory> optional_floats(const GgufTensor* tensor) {
    return tensor == nullptr ? nullptr : load_floats(*tensor, reader_, device_);
  }

  Layer load_layer(const LlamaLayerTensors& tensors, LlamaLayerGroups groups) {
    Layer layer;
    layer.attention_norm = load_floats(*tensors.attn_norm, reader_, device_);
    layer.ff_norm = load_floats(*tensors.ffn_norm, reader_, device_);
    layer.groups = std::move(groups);
    layer.q_bias = optional_floats(tensors.attn_q_bias);
    layer.k_bias = optional_floats(tensors.attn_k_bias);
    layer.v_bias = optional_floats(tensors.attn_v_bias);
    layer.out_bias = optional_floats(tensors.attn_output_bias);
    layer.gate_bias = optional_floats(tensors.ffn_gate_bias);
    layer.up_bias = optional_floats(tensors.ffn_up_bias);
    layer.down_bias = optional_floats(tensors.ffn_down_bias);
    return layer;
  }

  void make_scratch(const StepLimits& limits) {
    auto floats = [this](uint64_t rows, uint64_t dim) {
      return device_.allocate(std::max<uint64_t>(1, rows * dim) * sizeof(float));
    };
    x_ = floats(limits.max_rows, config_.dim);
    normed_ = floats(rows_at_once_, config_.dim);
    k_ = floats(rows_at_once_, kv_dim_);
    v_ = floats(rows_at_once_, kv_dim_);
    gate_ = floats(rows_at_once_, std::max(config_.ff_dim, q_dim_));
    up_ = floats(rows_at_once_, std::max(config_.ff_dim, q_dim_));
    q_ = up_->floats();
    attended_ = gate_->floats();
    last_ = floats(limits.max_logit_rows, config_.dim);
    logits_ = floats(limits.max_logit_rows, config_.n_vocab);
    device_.reserve(rows_at_once_, Model::widest_input(config_));
  }

  void set_normed_input(const float* x, DeviceMemory& weight, uint32_t rows, float* normed) {
    device_.norm_input(x, weight.floats(), config_.norm_epsilon, rows, config_.dim, normed);
  }

  // Applies the matrices of a group to the current input, slice by slice. outputs: one a matrix.
  // With compute = false the slices only pass: the order of a sweep is always the same.
  void apply(
      PassingWeights& weights,
      const WeightGroup& group,
      const std::vector<GroupOutput>& outputs,
      bool compute = true) {
    for (uint32_t slice = group.first_slice; slice < group.first_slice + group.n_slices; ++slice) {
      weights.with(slice, [&](const std::vector<MatrixView>& matrices) {
        if (!compute) return;
        parts_.clear();
        const auto& extents = slices_.plan.slices[slice].extents;
        for (size_t i = 0; i < extents.size(); ++i) {
          size_t matrix = 0;
          while (group.tensors[matrix] != extents[i].tensor)
            ++matrix;
          const GroupOutput& output = outputs[matrix];
          uint32_t first = extents[i].first_row;
          parts_.push_back(
              {.weight = matrices[i],
               .bias = output.bias == nullptr ? nullptr : output.bias + first,
               .out = output.out,
               .out_stride = output.stride,
               .out_column = first,
               .accumulate = output.accumulate});
        }
        device_.linear(parts_);
      });
    }
  }

  // Batches in the order of the rows: what earlier rows of a sequence store is there before later
  // ones attend to it.
  void attend(WeightStream& stream, const KvLayer& kv, const Step& step, const Layer& layer) {
    PassingWeights weights(stream, layer.groups.attention, batches_.size() > 1);
    for (const RowBatch& rows : batches_) {
      if (batches_.size() > 1) device_.begin_step(step.rows(rows.first, rows.n));
      attend(weights, kv, rows, layer);
    }
  }

  void
  attend(PassingWeights& weights, const KvLayer& kv, const RowBatch& rows, const Layer& layer) {
    float* const x = rows.of(*x_, config_.dim);
    set_normed_input(x, *layer.attention_norm, rows.n, normed_->floats());
    apply(
        weights, layer.groups.qkv,
        {{.out = q_, .stride = q_dim_, .bias = floats_or_null(layer.q_bias)},
         {.out = k_->floats(), .stride = kv_dim_, .bias = floats_or_null(layer.k_bias)},
         {.out = v_->floats(), .stride = kv_dim_, .bias = floats_or_null(layer.v_bias)}});
    device_.rope_and_store(
        rope_shape(config_.n_heads), rope_shape(config_.n_kv_heads), kv, q_, k_->floats(),
        v_->floats());
    float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
    device_.attention_input(kv, q_, rows.n, config_.n_heads, scale, attended_);
    apply(
        weights, layer.groups.attention_out,
        {{.out = x,
          .stride = config_.dim,
          .bias = floats_or_null(layer.out_bias),
          .accumulate = true}});
  }

  void feed_forward(WeightStream& stream, const Layer& layer) {
    PassingWeights weights(stream, layer.groups.feed_forward, batches_.size() > 1);
    for (const RowBatch& rows : batches_)
      feed_forward(weights, rows, layer);
  }

  void feed_forward(PassingWeights& weights, const RowBatch& rows, const Layer& layer) {
    float* const x = rows.of(*x_, config_.dim);
    set_normed_input(x, *layer.ff_norm, rows.n, normed_->floats());
    apply(
        weights, layer.groups.gate_up,
        {{.out = gate_->floats(),
          .stride = config_.ff_dim,
          .bias = floats_or_null(layer.gate_bias)},
         {.out = up_->floats(), .stride = config_.ff_dim, .bias = floats_or_null(layer.up_bias)}});
    device_.gate_input(gate_->floats(), up_->floats(), rows.n, config_.ff_dim, gate_->floats());
    apply(
        weights, layer.groups.down,
        {{.out = x,
          .stride = config_.dim,
          .bias = floats_or_null(layer.down_bias),
          .accumulate = true}});
  }

  RopeShape rope_shape(uint32_t n_heads) const {
    return {
        .n_heads = n_heads,
        .head_dim = config_.head_dim,
        .n_rot = config_.n_rot,
        .half_split = config_.rope_half_split,
        .frequencies = config_.rope_frequencies};
  }

  const ModelConfig config_;
  Device& device_;
  const bool verifies_;
  const uint32_t rows_at_once_;
  std::vector<NumericFault> faults_;  // (rows) of the last step, where they are looked for
  LlamaTensors tensors_;              // parted where the file has them fused
  TensorReader reader_;
  EmbeddingTable embedding_;
  const uint32_t q_dim_;
  const uint32_t kv_dim_;

  ModelSlices slices_;
  std::vector<Layer> layers_;
  std::unique_ptr<DeviceMemory> output_norm_;  // (dim)
  WeightGroup head_;

  // State of one forward pass; R = rows_at_once(), L = max_logit_rows.
  std::vector<RowBatch> batches_;         // of the step, in order
  std::unique_ptr<DeviceMemory> x_;       // (max_rows, dim) the residual stream
  std::unique_ptr<DeviceMemory> normed_;  // (R, dim)
  std::unique_ptr<DeviceMemory> k_;       // (R, n_kv_heads, head_dim)
  std::unique_ptr<DeviceMemory> v_;       // (R, n_kv_heads, head_dim)
  std::unique_ptr<DeviceMemory> gate_;    // (R, ff_dim), and room for attended_
  std::unique_ptr<DeviceMemory> up_;      // (R, ff_dim), and room for q_
  // Attention and feed-forward are never at work together: these lie in up_ and in gate_.
  float* q_ = nullptr;                    // (R, n_heads, head_dim)
  float* attended_ = nullptr;             // (R, n_heads, head_dim)
  std::unique_ptr<DeviceMemory> last_;    // (L, dim)
  std::unique_ptr<DeviceMemory> logits_;  // (L, n_vocab)
  std::vector<LinearPart> parts_;
};

}  // namespace

std::unique_ptr<Model> make_llama(
    const GgufModel& gguf,
    const ModelConfig& config,
    Device& device,
    const ModelOptions& options) {
  return std::make_unique<Llama>(gguf, config, device, options);
}

}  // namespace nightsweep
