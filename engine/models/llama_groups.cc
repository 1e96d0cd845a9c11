#include "engine/models/llama_groups.h"

#include <utility>

namespace nightsweep {

namespace {

// Rows [first, first + n) of a fused matrix or bias, as a tensor of their own; null for null.
const GgufTensor*
part_of(const GgufTensor* fused, uint32_t first, uint32_t n, std::deque<GgufTensor>& parts) {
  if (fused == nullptr) return nullptr;
  bool is_matrix = fused->dims.size() > 1;
  uint64_t row_bytes =
      quant_bytes(static_cast<QuantType>(fused->ggml_type), is_matrix ? fused->dims[0] : 1);
  GgufTensor part = *fused;
  part.dims.back() = n;
  part.offset = fused->offset + first * row_bytes;
  part.size_bytes = n * row_bytes;
  return &parts.emplace_back(std::move(part));
}

}  // namespace

LlamaGroups cut_llama(LlamaTensors& tensors, const ModelConfig& config, uint64_t max_slice_bytes) {
  const uint32_t q_dim = config.n_heads * config.head_dim;
  const uint32_t kv_dim = config.n_kv_heads * config.head_dim;
  LlamaGroups groups;
  WeightPlan& plan = groups.slices.plan;
  std::deque<GgufTensor>& parts = groups.slices.parts_of_fused;
  for (LlamaLayerTensors& layer : tensors.layers) {
    if (layer.attn_qkv != nullptr) {
      layer.attn_q = part_of(layer.attn_qkv, 0, q_dim, parts);
      layer.attn_k = part_of(layer.attn_qkv, q_dim, kv_dim, parts);
      layer.attn_v = part_of(layer.attn_qkv, q_dim + kv_dim, kv_dim, parts);
      layer.attn_q_bias = part_of(layer.attn_qkv_bias, 0, q_dim, parts);
      layer.attn_k_bias = part_of(layer.attn_qkv_bias, q_dim, kv_dim, parts);
      layer.attn_v_bias = part_of(layer.attn_qkv_bias, q_dim + kv_dim, kv_dim, parts);
    }
    LlamaLayerGroups cut;
    cut.qkv = add_group(plan, {layer.attn_q, layer.attn_k, layer.attn_v}, max_slice_bytes);
    cut.attention_out = add_group(plan, {layer.attn_output}, max_slice_bytes);
    cut.attention = add_window(plan, {&cut.qkv, &cut.attention_out});
    cut.gate_up = add_group(plan, {layer.ffn_gate, layer.ffn_up}, max_slice_bytes);
    cut.down = add_group(plan, {layer.ffn_down}, max_slice_bytes);
    cut.feed_forward = add_window(plan, {&cut.gate_up, &cut.down});
    groups.layers.push_back(std::move(cut));
  }
  groups.head = add_group(plan, {tensors.output}, max_slice_bytes);
  return groups;
}

ModelSlices
cut_llama_slices(const GgufModel& gguf, const ModelConfig& config, uint64_t max_slice_bytes) {
  LlamaTensors tensors = check_llama_tensors(gguf, config);
  return cut_llama(tensors, config, max_slice_bytes).slices;
}

}  // namespace nightsweep
