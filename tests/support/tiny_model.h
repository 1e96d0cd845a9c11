// Tiny Llama models of random weights, with a SentencePiece vocabulary of their own: how the
// project tests itself without any file from outside. Equal options give equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quant.h"
#include "support/gguf_writer.h"

namespace nightsweep {

struct TinyModelOptions {
  uint32_t n_layers = 2;
  uint32_t dim = 64;  // this, ff_dim and n_heads * head_dim: multiples of the type's block_elems
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 0;  // 0: dim / n_heads
  uint32_t ff_dim = 96;
  uint32_t n_vocab = 320;  // at least 320
  uint32_t context_tokens = 512;
  QuantType type = QuantType::f32;  // of all matrices; norms and biases are f32
  float rope_base = 10000.0F;
  float norm_epsilon = 1e-5F;
  bool tied = false;        // no output.weight
  bool rope_freqs = false;  // rope_freqs.weight
  bool biases = false;      // of q, k, v, attention output, gate, up and down
  bool fused_qkv = false;   // attn_qkv.weight; the same weights as without
  std::string chat_template;
  uint64_t seed = 1;
};

// The writer, for tests that bend the model before it is written.
GgufWriter make_tiny_llama(const TinyModelOptions& options);
void write_tiny_llama(const std::string& path, const TinyModelOptions& options);

// <unk>, <s>, </s>, 256 byte tokens, then pieces.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
};
TinyVocabulary make_tiny_vocabulary(uint32_t n_vocab);

// Sound blocks of random values around zero with a standard deviation near `sigma`.
// REQUIRES: n_elems is a multiple of the type's block_elems.
std::string random_blocks(QuantType type, uint64_t n_elems, float sigma, uint64_t seed);

}  // namespace nightsweep
