// What a model is: the numbers of its architecture, read from the file's metadata and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace nightsweep {

// The limit of a model whose file says 0.
constexpr uint32_t kContextWhenUnknown = 4096;

struct ModelConfig {
  std::string architecture;  // "llama"
  uint32_t n_layers = 0;
  uint32_t context_tokens = 0;  // the model's own limit; 0 in the file means unknown
  uint32_t dim = 0;             // embedding length
  uint32_t ff_dim = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;  // of q, k and v
  uint32_t n_rot = 0;     // dimensions that RoPE turns
  uint32_t n_vocab = 0;   // rows of the embedding
  float norm_epsilon = 0;
  bool tied_output = false;  // no output.weight: the embedding serves
  bool rope_half_split = false;
  std::vector<double> rope_frequencies;  // (n_rot / 2) radians a position, scaling included

  uint64_t kv_elems_per_token() const { return 2ULL * n_layers * n_kv_heads * head_dim; }
};

// Throws Error(model) that names the key or tensor: a missing or impossible number, an
// architecture that is not known, metadata that would change the numbers and is not understood.
// `rope_freqs`: the dequantized tensor rope_freqs.weight, empty where the file has none.
ModelConfig read_model_config(const GgufModel& model, const std::vector<float>& rope_freqs);
// The same, with rope_freqs.weight read from the file.
ModelConfig read_model_config(const GgufModel& model);

// Throws Error(model) unless the vocabulary has a token for each row of the embedding and no more.
void check_vocabulary_size(const GgufModel& model, const ModelConfig& config);

// Architectures that can run, for messages: "llama".
std::string known_architectures();

}  // namespace nightsweep
