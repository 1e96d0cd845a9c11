#include "engine/llama_tensors.h"

#include <set>

#include "base/error.h"

namespace nightsweep {

namespace {

using Dims = std::vector<uint64_t>;  // fastest first

std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    text += format("{}{}", i == 0 ? "" : ", ", dims[i]);
  return text + "]";
}

// A matrix of one row may stand in a file as a vector.
Dims without_trailing_ones(Dims dims) {
  while (dims.size() > 1 && dims.back() == 1)
    dims.pop_back();
  return dims;
}

// Hands out tensors by name and remembers which were taken.
class TensorPicker {
 public:
  explicit TensorPicker(const GgufModel& model) : model_(model) {}

  const GgufTensor* find(const std::string& name, const Dims& dims) {
    const GgufTensor* tensor = model_.find_tensor(name);
    if (tensor == nullptr) return nullptr;
    if (without_trailing_ones(tensor->dims) != without_trailing_ones(dims)) {
      fail(
          ErrorKind::model, "{}: tensor '{}' has shape {}, expected {}", model_.name(), name,
          dims_text(tensor->dims), dims_text(dims));
    }
    const QuantTraits* traits = find_quant_traits(tensor->ggml_type);
    if (!traits->can_compute) {
      fail(
          ErrorKind::model,
          "{}: tensor '{}' is of type {}, which is not supported yet (fetch the model in another "
          "quantisation, such as Q4_K_M or Q8_0)",
          model_.name(), name, traits->name);
    }
    taken_.insert(tensor);
    return tensor;
  }

  const GgufTensor* require(const std::string& name, const Dims& dims) {
    const GgufTensor* tensor = find(name, dims);
    if (tensor == nullptr) {
      fail(
          ErrorKind::model, "{}: tensor '{}' is missing (expected, of shape {})", model_.name(),
          name, dims_text(dims));
    }
    return tensor;
  }

  void refuse_the_rest() const {
    for (const GgufTensor& tensor : model_.tensors()) {
      if (taken_.contains(&tensor)) continue;
      fail(
          ErrorKind::model,
          "{}: tensor {} of shape {} is not expected and might change the numbers, so the model is "
          "not run",
          model_.name(), quoted_for_message(tensor.name), dims_text(tensor.dims));
    }
  }

 private:
  const GgufModel& model_;
  std::set<const GgufTensor*> taken_;
};

LlamaLayerTensors
pick_layer(TensorPicker& picker, const GgufModel& model, const ModelConfig& config, uint32_t i) {
  std::string prefix = format("blk.{}.", i);
  uint64_t dim = config.dim;
  uint64_t q_dim = uint64_t{config.n_heads} * config.head_dim;
  uint64_t kv_dim = uint64_t{config.n_kv_heads} * config.head_dim;
  uint64_t ff_dim = config.ff_dim;

  LlamaLayerTensors layer;
  layer.attn_norm = picker.require(prefix + "attn_norm.weight", {dim});
  if (model.find_tensor(prefix + "attn_qkv.weight") != nullptr) {
    uint64_t n_rows = q_dim + 2 * kv_dim;
    layer.attn_qkv = picker.require(prefix + "attn_qkv.weight", {dim, n_rows});
    layer.attn_qkv_bias = picker.find(prefix + "attn_qkv.bias", {n_rows});
  } else {
    layer.attn_q = picker.require(prefix + "attn_q.weight", {dim, q_dim});
    layer.attn_k = picker.require(prefix + "attn_k.weight", {dim, kv_dim});
    layer.attn_v = picker.require(prefix + "attn_v.weight", {dim, kv_dim});
    layer.attn_q_bias = picker.find(prefix + "attn_q.bias", {q_dim});
    layer.attn_k_bias = picker.find(prefix + "attn_k.bias", {kv_dim});
    layer.attn_v_bias = picker.find(prefix + "attn_v.bias", {kv_dim});
  }
  layer.attn_output = picker.require(prefix + "attn_output.weight", {q_dim, dim});
  layer.attn_output_bias = picker.find(prefix + "attn_output.bias", {dim});
  layer.ffn_norm = picker.require(prefix + "ffn_norm.weight", {dim});
  layer.ffn_gate = picker.require(prefix + "ffn_gate.weight", {dim, ff_dim});
  layer.ffn_up = picker.require(prefix + "ffn_up.weight", {dim, ff_dim});
  layer.ffn_down = picker.require(prefix + "ffn_down.weight", {ff_dim, dim});
  layer.ffn_gate_bias = picker.find(prefix + "ffn_gate.bias", {ff_dim});
  layer.ffn_up_bias = picker.find(prefix + "ffn_up.bias", {ff_dim});
  layer.ffn_down_bias = picker.find(prefix + "ffn_down.bias", {dim});
  return layer;
}

}  // namespace

LlamaTensors check_llama_tensors(const GgufModel& model, const ModelConfig& config) {
  TensorPicker picker(model);
  uint64_t dim = config.dim;
  uint64_t n_vocab = config.n_vocab;
  LlamaTensors tensors;
  tensors.token_embd = picker.require("token_embd.weight", {dim, n_vocab});
  tensors.output_norm = picker.require("output_norm.weight", {dim});
  tensors.output = picker.find("output.weight", {dim, n_vocab});
  if (tensors.output == nullptr) tensors.output = tensors.token_embd;
  picker.find("rope_freqs.weight", {config.n_rot / 2});
  for (uint32_t i = 0; i < config.n_layers; ++i) {
    tensors.layers.push_back(pick_layer(picker, model, config, i));
  }
  picker.refuse_the_rest();
  return tensors;
}

}  // namespace nightsweep
