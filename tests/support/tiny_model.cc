#include "support/tiny_model.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/format.h"

namespace nightsweep {

namespace {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  uint8_t byte() { return static_cast<uint8_t>(next() >> 56); }
  // In [-1, 1).
  float uniform() { return static_cast<float>(static_cast<int64_t>(next()) >> 40) * 0x1p-23F; }
  // Standard deviation 1, never beyond 3.5: the sum of four uniform numbers.
  float bell() { return (uniform() + uniform() + uniform() + uniform()) * std::sqrt(0.75F); }

 private:
  uint64_t state_;
};

uint64_t seed_of(uint64_t seed, std::string_view name) {
  uint64_t hash = seed * 0x9e3779b97f4a7c15ULL;
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

void put_half(std::string& out, float value) {
  uint16_t bits = float_to_half(value);
  out += static_cast<char>(bits & 0xff);
  out += static_cast<char>(bits >> 8);
}

void put_random_bytes(std::string& out, size_t n, Random& random) {
  for (size_t i = 0; i < n; ++i)
    out += static_cast<char>(random.byte());
}

void put_float(std::string& out, float value) {
  char raw[sizeof(float)];
  std::memcpy(raw, &value, sizeof(float));
  out.append(raw, sizeof(float));
}

// The quantised numbers are random bits; the scale brings them to `sigma`. The constants are the
// standard deviations of what those bits mean, see the layouts in kernels/quant.h.
void put_block(std::string& out, QuantType type, float sigma, Random& random) {
  // A negative scale now and then, as real files have them.
  float scale = sigma * (1.0F + 0.25F * random.uniform()) * (random.byte() < 64 ? -1.0F : 1.0F);
  switch (type) {
    case QuantType::f32:
      put_float(out, sigma * random.bell());
      return;
    case QuantType::f16:
      put_half(out, sigma * random.bell());
      return;
    case QuantType::bf16: {
      std::string raw;
      put_float(raw, sigma * random.bell());
      out += raw.substr(2);
      return;
    }
    case QuantType::q4_0:
      put_half(out, scale / 4.6F);
      put_random_bytes(out, 16, random);
      return;
    case QuantType::q4_1:
      put_half(out, scale / 4.6F);
      put_half(out, -7.5F * scale / 4.6F);
      put_random_bytes(out, 16, random);
      return;
    case QuantType::q5_0:
      put_half(out, scale / 9.2F);
      put_random_bytes(out, 4 + 16, random);
      return;
    case QuantType::q5_1:
      put_half(out, scale / 9.2F);
      put_half(out, -15.5F * scale / 9.2F);
      put_random_bytes(out, 4 + 16, random);
      return;
    case QuantType::q8_0:
      put_half(out, scale / 74.0F);
      put_random_bytes(out, 32, random);
      return;
    case QuantType::q4_k:
      put_half(out, scale / 260.0F);
      put_half(out, 7.5F * scale / 260.0F);
      put_random_bytes(out, 12 + 128, random);
      return;
    case QuantType::q5_k:
      put_half(out, scale / 530.0F);
      put_half(out, 15.5F * scale / 530.0F);
      put_random_bytes(out, 12 + 32 + 128, random);
      return;
    case QuantType::q6_k:
      put_random_bytes(out, 128 + 64 + 16, random);
      put_half(out, scale / 1370.0F);
      return;
  }
}

struct Shape {
  uint32_t n_cols = 0;
  uint32_t n_rows = 0;
};

// Adds the tensors of one model.
class TinyLlama {
 public:
  explicit TinyLlama(const TinyModelOptions& options)
      : options_(options),
        head_dim_(options.head_dim != 0 ? options.head_dim : options.dim / options.n_heads) {}

  GgufWriter build() {
    add_keys();
    const TinyModelOptions& o = options_;
    // Logits of a few units: a distribution with a clear favourite, not a single one.
    float head_sigma = 3.0F / std::sqrt(static_cast<float>(o.dim));
    add_matrix("token_embd.weight", {o.dim, o.n_vocab}, head_sigma);
    if (o.rope_freqs) add_rope_freqs();
    for (uint32_t layer = 0; layer < o.n_layers; ++layer)
      add_layer(format("blk.{}.", layer));
    add_norm("output_norm.weight");
    if (!o.tied) add_matrix("output.weight", {o.dim, o.n_vocab}, head_sigma);
    return std::move(writer_);
  }

 private:
  void add_keys() {
    const TinyModelOptions& o = options_;
    writer_.set_string("general.architecture", "llama")
        .set_string("general.name", "tiny-llama")
        .set_u32("llama.block_count", o.n_layers)
        .set_u32("llama.context_length", o.context_tokens)
        .set_u32("llama.embedding_length", o.dim)
        .set_u32("llama.feed_forward_length", o.ff_dim)
        .set_u32("llama.attention.head_count", o.n_heads)
        .set_u32("llama.attention.head_count_kv", o.n_kv_heads)
        .set_f32("llama.attention.layer_norm_rms_epsilon", o.norm_epsilon)
        .set_f32("llama.rope.freq_base", o.rope_base)
        .set_u32("llama.rope.dimension_count", head_dim_)
        .set_u32("llama.vocab_size", o.n_vocab);
    if (o.head_dim != 0) {
      writer_.set_u32("llama.attention.key_length", head_dim_)
          .set_u32("llama.attention.value_length", head_dim_);
    }
    TinyVocabulary vocabulary = make_tiny_vocabulary(o.n_vocab);
    writer_.set_string("tokenizer.ggml.model", "llama")
        .set_string("tokenizer.ggml.pre", "default")
        .set_strings("tokenizer.ggml.tokens", vocabulary.tokens)
        .set_f32s("tokenizer.ggml.scores", vocabulary.scores)
        .set_i32s("tokenizer.ggml.token_type", vocabulary.types)
        .set_u32("tokenizer.ggml.bos_token_id", 1)
        .set_u32("tokenizer.ggml.eos_token_id", 2)
        .set_u32("tokenizer.ggml.unknown_token_id", 0)
        .set_bool("tokenizer.ggml.add_bos_token", true);
    if (!o.chat_template.empty()) {
      writer_.set_string("tokenizer.chat_template", o.chat_template);
    }
  }

  void add_layer(const std::string& prefix) {
    const TinyModelOptions& o = options_;
    uint32_t q_dim = o.n_heads * head_dim_;
    uint32_t kv_dim = o.n_kv_heads * head_dim_;
    add_norm(prefix + "attn_norm.weight");
    std::string q = matrix(prefix + "attn_q.weight", {o.dim, q_dim}, sigma_of(o.dim));
    std::string k = matrix(prefix + "attn_k.weight", {o.dim, kv_dim}, sigma_of(o.dim));
    std::string v = matrix(prefix + "attn_v.weight", {o.dim, kv_dim}, sigma_of(o.dim));
    if (o.fused_qkv) {
      put_matrix(prefix + "attn_qkv.weight", {o.dim, q_dim + 2 * kv_dim}, q + k + v);
    } else {
      put_matrix(prefix + "attn_q.weight", {o.dim, q_dim}, q);
      put_matrix(prefix + "attn_k.weight", {o.dim, kv_dim}, k);
      put_matrix(prefix + "attn_v.weight", {o.dim, kv_dim}, v);
    }
    add_matrix(prefix + "attn_output.weight", {q_dim, o.dim}, sigma_of(q_dim));
    add_norm(prefix + "ffn_norm.weight");
    add_matrix(prefix + "ffn_gate.weight", {o.dim, o.ff_dim}, sigma_of(o.dim));
    add_matrix(prefix + "ffn_up.weight", {o.dim, o.ff_dim}, sigma_of(o.dim));
    add_matrix(prefix + "ffn_down.weight", {o.ff_dim, o.dim}, sigma_of(o.ff_dim));
    if (!o.biases) return;
    std::vector<float> q_bias = vector(prefix + "attn_q.bias", q_dim, 0.0F, 0.2F);
    std::vector<float> k_bias = vector(prefix + "attn_k.bias", kv_dim, 0.0F, 0.2F);
    std::vector<float> v_bias = vector(prefix + "attn_v.bias", kv_dim, 0.0F, 0.2F);
    if (o.fused_qkv) {
      q_bias.insert(q_bias.end(), k_bias.begin(), k_bias.end());
      q_bias.insert(q_bias.end(), v_bias.begin(), v_bias.end());
      writer_.set_f32_tensor(prefix + "attn_qkv.bias", {q_bias.size()}, q_bias);
    } else {
      writer_.set_f32_tensor(prefix + "attn_q.bias", {q_dim}, q_bias);
      writer_.set_f32_tensor(prefix + "attn_k.bias", {kv_dim}, k_bias);
      writer_.set_f32_tensor(prefix + "attn_v.bias", {kv_dim}, v_bias);
    }
    add_vector(prefix + "attn_output.bias", o.dim, 0.0F, 0.2F);
    add_vector(prefix + "ffn_gate.bias", o.ff_dim, 0.0F, 0.2F);
    add_vector(prefix + "ffn_up.bias", o.ff_dim, 0.0F, 0.2F);
    add_vector(prefix + "ffn_down.bias", o.dim, 0.0F, 0.2F);
  }

  // Llama 3.1 in small: the fast half turns as ever, the slow half up to eight times slower.
  void add_rope_freqs() {
    uint32_t n_pairs = head_dim_ / 2;
    std::vector<float> factors(n_pairs, 1.0F);
    for (uint32_t i = n_pairs / 2; i < n_pairs; ++i) {
      factors[i] = 1.0F + 7.0F * static_cast<float>(i + 1 - n_pairs / 2) /
                              static_cast<float>(n_pairs - n_pairs / 2);
    }
    writer_.set_f32_tensor("rope_freqs.weight", {n_pairs}, factors);
  }

  static float sigma_of(uint32_t n_cols) { return 1.0F / std::sqrt(static_cast<float>(n_cols)); }

  std::string matrix(const std::string& name, Shape shape, float sigma) const {
    const uint32_t block = quant_traits(options_.type).block_elems;
    if (shape.n_cols % block != 0) {
      throw std::runtime_error(
          format("tiny model: {} has rows of {}, no multiple of {}", name, shape.n_cols, block));
    }
    return random_blocks(
        options_.type, uint64_t{shape.n_cols} * shape.n_rows, sigma, seed_of(options_.seed, name));
  }

  void put_matrix(const std::string& name, Shape shape, std::string data) {
    writer_.set_tensor(
        name, {shape.n_cols, shape.n_rows}, static_cast<uint32_t>(options_.type), std::move(data));
  }

  void add_matrix(const std::string& name, Shape shape, float sigma) {
    put_matrix(name, shape, matrix(name, shape, sigma));
  }

  std::vector<float> vector(const std::string& name, uint32_t n, float mean, float sigma) const {
    Random random(seed_of(options_.seed, name));
    std::vector<float> values(n);
    for (float& value : values)
      value = mean + sigma * random.bell();
    return values;
  }

  void add_vector(const std::string& name, uint32_t n, float mean, float sigma) {
    writer_.set_f32_tensor(name, {n}, vector(name, n, mean, sigma));
  }

  void add_norm(const std::string& name) { add_vector(name, options_.dim, 1.0F, 0.1F); }

  const TinyModelOptions& options_;
  uint32_t head_dim_;
  GgufWriter writer_;
};

}  // namespace

std::string random_blocks(QuantType type, uint64_t n_elems, float sigma, uint64_t seed) {
  Random random(seed);
  std::string out;
  out.reserve(quant_bytes(type, n_elems));
  for (uint64_t i = 0; i < n_elems / quant_traits(type).block_elems; ++i) {
    put_block(out, type, sigma, random);
  }
  return out;
}

TinyVocabulary make_tiny_vocabulary(uint32_t n_vocab) {
  constexpr uint32_t kLeast = 320;
  if (n_vocab < kLeast) throw std::runtime_error("tiny model: n_vocab is below 320");
  TinyVocabulary vocabulary;
  auto add = [&](const std::string& token, float score, int32_t type) {
    if (vocabulary.tokens.size() == n_vocab) return;
    vocabulary.tokens.push_back(token);
    vocabulary.scores.push_back(score);
    vocabulary.types.push_back(type);
  };
  constexpr int32_t kNormal = 1;
  constexpr int32_t kUnknown = 2;
  constexpr int32_t kControl = 3;
  constexpr int32_t kByte = 6;
  add("<unk>", 0, kUnknown);
  add("<s>", 0, kControl);
  add("</s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte)
    add(format("<0x{:02X}>", byte), 0, kByte);

  // U+2581 stands for the space. A longer piece is always made of two that stand before it.
  const std::string space = "\xe2\x96\x81";
  const std::vector<std::string> pieces = {
      space + "t", "he",        "in",        space + "a", "er",          "on",  space + "the", "re",
      "at",        space + "s", "en",        "or",        space + "w",   "an",  "is",          "ou",
      space + "o", "nd",        space + "m", "it",        "es",          "ing", space + "and", "st",
      "ll",        "ed",        space + "i", "ar",        space + space, "ow"};
  float score = -1;
  for (const std::string& piece : pieces)
    add(piece, score--, kNormal);
  add(space, score--, kNormal);
  for (char c = 'a'; c <= 'z'; ++c)
    add(std::string(1, c), score--, kNormal);
  for (char c : std::string(".,?!"))
    add(std::string(1, c), score--, kNormal);
  for (char c = '!'; c <= '~'; ++c) {
    if ((c >= 'a' && c <= 'z') || std::string(".,?!").find(c) != std::string::npos) continue;
    add(std::string(1, c), score--, kNormal);
  }
  for (uint32_t i = 0; vocabulary.tokens.size() < n_vocab; ++i) {
    add(format("{}piece{}", space, i), score--, kNormal);
  }
  return vocabulary;
}

GgufWriter make_tiny_llama(const TinyModelOptions& options) {
  return TinyLlama(options).build();
}

void write_tiny_llama(const std::string& path, const TinyModelOptions& options) {
  make_tiny_llama(options).write(path);
}

}  // namespace nightsweep
