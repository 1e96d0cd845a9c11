// The tensors of the llama architecture, found by name and checked against the config.
#pragma once

#include <vector>

#include "engine/gguf.h"
#include "engine/model_config.h"

namespace nightsweep {

// Shapes in rows and columns; E: dim, Q: n_heads * head_dim, K: n_kv_heads * head_dim, F: ff_dim.
// Null where the file has none. Pointers into the model.
struct LlamaLayerTensors {
  const GgufTensor* attn_norm = nullptr;         // (E)
  const GgufTensor* attn_q = nullptr;            // (Q, E); null when fused
  const GgufTensor* attn_k = nullptr;            // (K, E); null when fused
  const GgufTensor* attn_v = nullptr;            // (K, E); null when fused
  const GgufTensor* attn_qkv = nullptr;          // (Q + K + K, E), only when fused
  const GgufTensor* attn_output = nullptr;       // (E, Q)
  const GgufTensor* ffn_norm = nullptr;          // (E)
  const GgufTensor* ffn_gate = nullptr;          // (F, E)
  const GgufTensor* ffn_up = nullptr;            // (F, E)
  const GgufTensor* ffn_down = nullptr;          // (E, F)
  const GgufTensor* attn_q_bias = nullptr;       // (Q), optional; null when fused
  const GgufTensor* attn_k_bias = nullptr;       // (K), optional; null when fused
  const GgufTensor* attn_v_bias = nullptr;       // (K), optional; null when fused
  const GgufTensor* attn_qkv_bias = nullptr;     // (Q + K + K), optional, only when fused
  const GgufTensor* attn_output_bias = nullptr;  // (E), optional
  const GgufTensor* ffn_gate_bias = nullptr;     // (F), optional
  const GgufTensor* ffn_up_bias = nullptr;       // (F), optional
  const GgufTensor* ffn_down_bias = nullptr;     // (E), optional
};

struct LlamaTensors {
  const GgufTensor* token_embd = nullptr;   // (n_vocab, E)
  const GgufTensor* output_norm = nullptr;  // (E)
  const GgufTensor* output = nullptr;       // (n_vocab, E); token_embd when tied
  std::vector<LlamaLayerTensors> layers;
};

// Throws Error(model) that names the tensor: missing, of another shape (expected and found), of a
// type that cannot be computed with, or not expected at all.
LlamaTensors check_llama_tensors(const GgufModel& model, const ModelConfig& config);

}  // namespace nightsweep
