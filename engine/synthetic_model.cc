#include "engine/synthetic_model.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

namespace nightsweep {

namespace {

// Shapes of the released models; sources: their config.json.
struct Shape {
  const char* name;
  uint32_t n_layers;
  uint32_t dim;
  uint32_t n_heads;
  uint32_t n_kv_heads;
  uint32_t head_dim;
  uint32_t ff_dim;
  uint32_t n_vocab;
  uint32_t context_tokens;
  bool is_tied;  // no head of its own
};
constexpr Shape kShapes[] = {
    {"llama-tiny", 4, 256, 8, 4, 32, 768, 4096, 4096, false},
    {"smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, true},
    {"llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true},
    {"llama-3b", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true},
    {"llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, false},
    {"llama-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, false},
    {"llama-405b", 126, 16384, 128, 8, 128, 53248, 128256, 131072, false},
};

// Types by the part of the model.
struct Mix {
  const char* name;
  QuantType most;
  QuantType head;  // and some values and downs
  bool is_mixed;
};
constexpr Mix kMixes[] = {
    {"F32", QuantType::f32, QuantType::f32, false},
    {"F16", QuantType::f16, QuantType::f16, false},
    {"BF16", QuantType::bf16, QuantType::bf16, false},
    {"Q4_0", QuantType::q4_0, QuantType::q4_0, false},
    {"Q4_1", QuantType::q4_1, QuantType::q4_1, false},
    {"Q5_0", QuantType::q5_0, QuantType::q5_0, false},
    {"Q5_1", QuantType::q5_1, QuantType::q5_1, false},
    {"Q8_0", QuantType::q8_0, QuantType::q8_0, false},
    {"Q4_K", QuantType::q4_k, QuantType::q4_k, false},
    {"Q5_K", QuantType::q5_k, QuantType::q5_k, false},
    {"Q6_K", QuantType::q6_k, QuantType::q6_k, false},
    {"Q4_K_M", QuantType::q4_k, QuantType::q6_k, true},
    {"Q5_K_M", QuantType::q5_k, QuantType::q6_k, true},
};

std::string known_mixes() {
  std::string names;
  for (const Mix& mix : kMixes)
    names += std::string(names.empty() ? "" : ", ") + mix.name;
  return names;
}

// Which layers have more bits in values and downs: the first and last eighth, and every third
// between (llama.cpp, use_more_bits of its quantiser).
bool has_more_bits(uint32_t layer, uint32_t n_layers) {
  return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

class HeadWriter {
 public:
  void key(std::string_view name, GgufType type) {
    string(name);
    number(static_cast<uint32_t>(type));
    ++n_keys_;
  }
  void u32_key(std::string_view name, uint32_t value) {
    key(name, GgufType::u32);
    number(value);
  }
  void f32_key(std::string_view name, float value) {
    key(name, GgufType::f32);
    number(value);
  }
  void string_key(std::string_view name, std::string_view value) {
    key(name, GgufType::string);
    string(value);
  }
  void array_key(std::string_view name, GgufType element, uint64_t size) {
    key(name, GgufType::array);
    number(static_cast<uint32_t>(element));
    number(size);
  }
  template <typename Number>
  void number(Number value) {
    static_assert(std::endian::native == std::endian::little);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  uint64_t n_keys() const { return n_keys_; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  uint64_t n_keys_ = 0;
};

constexpr uint64_t kTensorAlignment = 32;
constexpr uint64_t aligned(uint64_t value) {
  return (value + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

class SyntheticModel {
 public:
  explicit SyntheticModel(const std::string& name) {
    const size_t colon = name.find(':');
    const std::string shape_name = name.substr(0, colon);
    const std::string mix_name = colon == std::string::npos ? "Q4_K_M" : name.substr(colon + 1);
    const auto* shape =
        std::ranges::find_if(kShapes, [&](const Shape& known) { return shape_name == known.name; });
    const auto* mix =
        std::ranges::find_if(kMixes, [&](const Mix& known) { return mix_name == known.name; });
    if (shape == std::end(kShapes) || mix == std::end(kMixes)) {
      fail(
          ErrorKind::usage,
          "--shape: expected SHAPE:TYPE such as llama-70b:Q4_K_M, found '{}' (shapes: {}; types: "
          "{})",
          name, known_shapes(), known_mixes());
    }
    shape_ = shape;
    mix_ = mix;
    const uint32_t block = quant_traits(mix->most).block_elems;
    if (shape->dim % block != 0 || shape->ff_dim % block != 0) {
      fail(
          ErrorKind::usage, "--shape {}: rows of {} and {} are no multiples of the {} of a block",
          name, shape->dim, shape->ff_dim, block);
    }
    add_tensors();
    write_head();
  }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::string& head() const { return head_; }
  uint64_t file_bytes() const { return head_.size() + data_bytes_; }

 private:
  void add(const std::string& name, std::vector<uint64_t> dims, QuantType type) {
    GgufTensor tensor;
    tensor.name = name;
    tensor.dims = std::move(dims);
    tensor.ggml_type = static_cast<uint32_t>(type);
    tensor.size_bytes = quant_bytes(type, tensor.n_elems());
    tensor.offset = data_bytes_;
    data_bytes_ += aligned(tensor.size_bytes);
    tensors_.push_back(std::move(tensor));
  }

  void add_tensors() {
    const Shape& s = *shape_;
    const uint64_t q_dim = uint64_t{s.n_heads} * s.head_dim;
    const uint64_t kv_dim = uint64_t{s.n_kv_heads} * s.head_dim;
    add("token_embd.weight", {s.dim, s.n_vocab}, s.is_tied ? mix_->head : mix_->most);
    add("output_norm.weight", {s.dim}, QuantType::f32);
    if (!s.is_tied) add("output.weight", {s.dim, s.n_vocab}, mix_->head);
    for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
      const std::string prefix = format("blk.{}.", layer);
      const bool more = mix_->is_mixed && has_more_bits(layer, s.n_layers);
      const QuantType most = mix_->most;
      const QuantType some = more ? mix_->head : mix_->most;
      add(prefix + "attn_norm.weight", {s.dim}, QuantType::f32);
      add(prefix + "attn_q.weight", {s.dim, q_dim}, most);
      add(prefix + "attn_k.weight", {s.dim, kv_dim}, most);
      add(prefix + "attn_v.weight", {s.dim, kv_dim}, some);
      add(prefix + "attn_output.weight", {q_dim, s.dim}, most);
      add(prefix + "ffn_norm.weight", {s.dim}, QuantType::f32);
      add(prefix + "ffn_gate.weight", {s.dim, s.ff_dim}, most);
      add(prefix + "ffn_up.weight", {s.dim, s.ff_dim}, most);
      add(prefix + "ffn_down.weight", {s.ff_dim, s.dim}, some);
    }
  }

  void write_head() {
    HeadWriter keys;
    add_config(keys);
    add_vocabulary(keys);
    HeadWriter infos;
    for (const GgufTensor& tensor : tensors_) {
      infos.string(tensor.name);
      infos.number(static_cast<uint32_t>(tensor.dims.size()));
      for (uint64_t dim : tensor.dims)
        infos.number(dim);
      infos.number(tensor.ggml_type);
      infos.number(tensor.offset);
    }
    HeadWriter begin;
    begin.number(uint32_t{3});
    begin.number(static_cast<uint64_t>(tensors_.size()));
    begin.number(keys.n_keys());
    head_ = "GGUF" + begin.bytes() + keys.bytes() + infos.bytes();
    head_.resize(aligned(head_.size()), '\0');
  }

  void add_config(HeadWriter& keys) const {
    const Shape& s = *shape_;
    keys.string_key("general.architecture", "llama");
    keys.string_key("general.name", format("{}:{}, synthetic", s.name, mix_->name));
    keys.u32_key("llama.block_count", s.n_layers);
    keys.u32_key("llama.context_length", s.context_tokens);
    keys.u32_key("llama.embedding_length", s.dim);
    keys.u32_key("llama.feed_forward_length", s.ff_dim);
    keys.u32_key("llama.attention.head_count", s.n_heads);
    keys.u32_key("llama.attention.head_count_kv", s.n_kv_heads);
    keys.u32_key("llama.attention.key_length", s.head_dim);
    keys.u32_key("llama.attention.value_length", s.head_dim);
    keys.u32_key("llama.rope.dimension_count", s.head_dim);
    keys.f32_key("llama.rope.freq_base", 5e5F);
    keys.f32_key("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    keys.u32_key("llama.vocab_size", s.n_vocab);
  }

  // SentencePiece: three of control, the bytes, and pieces that no text has.
  void add_vocabulary(HeadWriter& keys) const {
    constexpr uint32_t kFirstByte = 3;
    constexpr uint32_t kFirstPiece = kFirstByte + 256;
    const uint32_t n = shape_->n_vocab;
    keys.string_key("tokenizer.ggml.model", "llama");
    keys.array_key("tokenizer.ggml.tokens", GgufType::string, n);
    for (uint32_t id = 0; id < n; ++id) {
      constexpr const char* kControl[] = {"<unk>", "<s>", "</s>"};
      keys.string(
          id < kFirstByte    ? std::string(kControl[id])
          : id < kFirstPiece ? format("<0x{:02X}>", id - kFirstByte)
                             : format("piece{}", id));
    }
    keys.array_key("tokenizer.ggml.scores", GgufType::f32, n);
    for (uint32_t id = 0; id < n; ++id)
      keys.number(-static_cast<float>(id));
    keys.array_key("tokenizer.ggml.token_type", GgufType::i32, n);
    for (uint32_t id = 0; id < n; ++id) {
      constexpr int32_t kNormal = 1;
      constexpr int32_t kUnknown = 2;
      constexpr int32_t kControl = 3;
      constexpr int32_t kByte = 6;
      keys.number(
          id == 0            ? kUnknown
          : id < kFirstByte  ? kControl
          : id < kFirstPiece ? kByte
                             : kNormal);
    }
    keys.u32_key("tokenizer.ggml.bos_token_id", 1);
    keys.u32_key("tokenizer.ggml.eos_token_id", 2);
    keys.u32_key("tokenizer.ggml.unknown_token_id", 0);
  }

  const Shape* shape_ = nullptr;
  const Mix* mix_ = nullptr;
  std::vector<GgufTensor> tensors_;
  uint64_t data_bytes_ = 0;
  std::string head_;
};

}  // namespace

std::string known_shapes() {
  std::string names;
  for (const Shape& shape : kShapes)
    names += std::string(names.empty() ? "" : ", ") + shape.name;
  return names;
}

// Bits as they come, scales such that values stand around 0.02, as trained ones do.
std::string synthetic_blocks(QuantType type, uint64_t about_bytes) {
  const QuantTraits& traits = quant_traits(type);
  const uint64_t n_blocks = about_bytes / traits.block_bytes;
  std::string blocks(n_blocks * traits.block_bytes, '\0');
  std::mt19937_64 random(static_cast<uint64_t>(type) + 1);
  for (size_t at = 0; at + sizeof(uint64_t) <= blocks.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(blocks.data() + at, &bits, sizeof bits);
  }
  for (uint64_t i = 0; i < n_blocks; ++i) {
    char* block = blocks.data() + i * traits.block_bytes;
    const auto put = [&](size_t offset, float value) {
      const uint16_t half = float_to_half(value);
      std::memcpy(block + offset, &half, sizeof half);
    };
    const float spread = 0.8F + 0.4F * static_cast<float>(i % 97) / 97;
    const float value = 0.03F * (static_cast<float>(random() % 65536) / 32768 - 1);
    switch (type) {
      case QuantType::f32:
        std::memcpy(block, &value, sizeof value);
        break;
      case QuantType::f16:
        put(0, value);
        break;
      case QuantType::bf16: {
        const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        std::memcpy(block, &bits, sizeof bits);
        break;
      }
      case QuantType::q4_0:
        put(0, 0.004F * spread);
        break;
      case QuantType::q4_1:
        put(0, 0.004F * spread);
        put(2, -0.03F * spread);
        break;
      case QuantType::q5_0:
        put(0, 0.002F * spread);
        break;
      case QuantType::q5_1:
        put(0, 0.002F * spread);
        put(2, -0.03F * spread);
        break;
      case QuantType::q8_0:
        put(0, 0.00027F * spread);
        break;
      case QuantType::q4_k:
        put(0, 1.3e-4F * spread);
        put(2, 9.75e-4F * spread);
        break;
      case QuantType::q5_k:
        put(0, 6.5e-5F * spread);
        put(2, 1.0e-3F * spread);
        break;
      case QuantType::q6_k:
        put(208, 1.5e-5F * spread);
        break;
    }
  }
  return blocks;
}

GgufModel synthetic_model(const std::string& name) {
  const SyntheticModel model(name);
  const std::span head(
      reinterpret_cast<const std::byte*>(model.head().data()), model.head().size());
  return GgufModel::from_head(
      name, parse_gguf_head(head, model.file_bytes(), name), model.file_bytes());
}

void write_synthetic_model(
    const std::string& name,
    const std::string& path,
    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  constexpr uint64_t kPatternBytes = 32 << 20;
  const SyntheticModel model(name);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  struct statvfs space = {};
  if (::statvfs(folder.c_str(), &space) == 0 &&
      uint64_t{space.f_bavail} * space.f_frsize < model.file_bytes()) {
    fail(
        ErrorKind::storage, "{}: {} takes {}, the disk has room for {}", path, name,
        size_text(model.file_bytes()), size_text(uint64_t{space.f_bavail} * space.f_frsize));
  }
  AtomicFile file(path, 0644);
  file.write(model.head());
  std::map<uint32_t, std::string> patterns;
  uint64_t done = model.head().size();
  uint64_t n_matrices = 0;
  for (const GgufTensor& tensor : model.tensors()) {
    const auto type = static_cast<QuantType>(tensor.ggml_type);
    if (tensor.dims.size() == 1) {
      // Norms, which multiply by it.
      const std::vector<float> ones(tensor.n_elems(), 1.0F);
      file.write({reinterpret_cast<const char*>(ones.data()), tensor.size_bytes});
    } else {
      // Another beginning in each tensor, at a whole block.
      std::string& pattern = patterns[tensor.ggml_type];
      if (pattern.empty()) pattern = synthetic_blocks(type, kPatternBytes);
      const uint64_t block_bytes = quant_traits(type).block_bytes;
      uint64_t from = ++n_matrices * 7919 % (pattern.size() / block_bytes) * block_bytes;
      for (uint64_t left = tensor.size_bytes; left > 0; from = 0) {
        const uint64_t piece = std::min<uint64_t>(left, pattern.size() - from);
        file.write(std::string_view(pattern).substr(from, piece));
        left -= piece;
      }
    }
    file.write(std::string(aligned(tensor.size_bytes) - tensor.size_bytes, '\0'));
    done += aligned(tensor.size_bytes);
    if (progress) progress(done, model.file_bytes());
  }
  file.commit();
  // What is still in the page cache would be read from there, not from the disk.
  const FileDescriptor written = open_for_reading(path, ErrorKind::storage);
  (void)::posix_fadvise(written.value(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace nightsweep
