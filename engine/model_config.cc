#include "engine/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxContextTokens = 1 << 30;
constexpr uint64_t kMaxDim = 1 << 20;
constexpr uint64_t kMaxFfDim = 1 << 22;
constexpr uint64_t kMaxHeads = 1 << 16;
constexpr uint64_t kMaxHeadDim = 1 << 16;
constexpr uint64_t kMaxVocab = 1 << 24;
constexpr double kDefaultRopeBase = 10000.0;

// Keys that the config is read from, or that say nothing about the numbers, behind "llama.".
constexpr std::array<std::string_view, 16> kKnownKeys = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.scaling.finetuned",  // how it was trained
    "vocab_size",              // the rows of the embedding decide
};

// Keys that are inert at one value and change the numbers at any other.
struct NeutralKey {
  std::string_view name;
  double neutral;
  std::string_view meaning;
};
constexpr std::array<NeutralKey, 18> kNeutralKeys = {{
    {"attention.sliding_window", 0, "sliding-window attention"},
    {"expert_count", 0, "a mixture of experts"},
    {"expert_used_count", 0, "a mixture of experts"},
    {"expert_shared_count", 0, "a mixture of experts"},
    {"leading_dense_block_count", 0, "a mixture of experts"},
    {"attn_logit_softcapping", 0, "soft-capped attention scores"},
    {"final_logit_softcapping", 0, "soft-capped logits"},
    {"attention.clamp_kqv", 0, "clamped queries, keys and values"},
    {"attention.max_alibi_bias", 0, "ALiBi"},
    {"attention.scale", 0, "another scale of the attention scores"},
    {"logit_scale", 1, "scaled logits"},
    {"residual_scale", 1, "scaled residuals"},
    {"embedding_scale", 1, "scaled embeddings"},
    {"rope.scaling.attn_factor", 1, "a factor on the rotation"},
    {"attention.causal", 1, "attention that is not causal"},
    {"use_parallel_residual", 0, "parallel residuals"},
    {"pooling_type", 0, "pooling (an embedding model)"},
    {"nextn_predict_layers", 0, "layers that predict further tokens"},
}};

// Reads and checks the keys of one architecture.
class LlamaKeys {
 public:
  explicit LlamaKeys(const GgufModel& model) : model_(model) {}

  ModelConfig read(const std::vector<float>& rope_freqs) const {
    refuse_what_changes_numbers();
    ModelConfig config;
    config.architecture = "llama";
    config.n_layers = require_in("block_count", 1, kMaxLayers);
    config.context_tokens = require_in("context_length", 0, kMaxContextTokens);
    config.dim = require_in("embedding_length", 1, kMaxDim);
    config.ff_dim = require_uniform("feed_forward_length", config.n_layers, kMaxFfDim);
    read_heads(config);
    config.norm_epsilon = read_epsilon();
    read_rope(rope_freqs, config);
    read_vocabulary(config);
    return config;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view name, fmt::format_string<Args...> text, Args&&... args)
      const {
    fail(
        ErrorKind::model, "{}: key '{}' {}", model_.name(), key(name),
        format(text, std::forward<Args>(args)...));
  }

  static std::string key(std::string_view name) { return format("llama.{}", name); }

  void refuse_what_changes_numbers() const {
    const std::string* type = model_.find_string("general.type");
    if (type != nullptr && *type != "model") {
      fail(
          ErrorKind::model, "{}: key 'general.type' is {}, expected 'model'", model_.name(),
          quoted_for_message(*type));
    }
    for (const auto& [name, value] : model_.keys()) {
      constexpr std::string_view kPrefix = "llama.";
      if (!name.starts_with(kPrefix)) continue;
      check_key(std::string_view(name).substr(kPrefix.size()), value);
    }
  }

  void check_key(std::string_view name, const GgufValue& value) const {
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), name) != kKnownKeys.end()) return;
    // Read by YaRN alone, which is refused by its type.
    if (name == "rope.scaling.original_context_length") return;
    if (name == "tensor_data_layout") {
      const std::string* layout = model_.find_string(key(name));
      if (*layout == "Meta AI original pth") return;
      refuse(name, "is {}, expected 'Meta AI original pth'", quoted_for_message(*layout));
    }
    const auto* neutral = std::find_if(
        kNeutralKeys.begin(), kNeutralKeys.end(),
        [&](const NeutralKey& entry) { return entry.name == name; });
    if (neutral == kNeutralKeys.end()) {
      fail(
          ErrorKind::model,
          "{}: key {} is not known and might change the numbers, so the model is not run",
          model_.name(), quoted_for_message(key(name)));
    }
    double number = std::holds_alternative<bool>(value.value)
                        ? static_cast<double>(std::get<bool>(value.value))
                        : *model_.find_number(key(name));
    if (number == neutral->neutral) return;
    refuse(
        name, "is {}: {} is not supported (expected {})", number, neutral->meaning,
        neutral->neutral);
  }

  uint32_t check_range(std::string_view name, uint64_t value, uint64_t least, uint64_t most) const {
    if (value < least || value > most) {
      refuse(name, "is {}, expected {} to {}", value, least, most);
    }
    return static_cast<uint32_t>(value);
  }

  uint32_t require_in(std::string_view name, uint64_t least, uint64_t most) const {
    return check_range(name, model_.require_unsigned(key(name)), least, most);
  }

  // A number, or an array with the same number for each layer.
  std::optional<uint32_t> find_uniform(std::string_view name, uint32_t n_layers, uint64_t most)
      const {
    const GgufValue* value = model_.find(key(name));
    if (value == nullptr) return std::nullopt;
    const auto* array = std::get_if<GgufArray>(&value->value);
    if (array == nullptr) return check_range(name, *model_.find_unsigned(key(name)), 1, most);
    const auto* numbers = std::get_if<std::vector<int64_t>>(&array->values);
    if (numbers == nullptr) {
      refuse(name, "is an array of {}, expected integers", gguf_type_name(array->element_type));
    }
    if (numbers->size() != n_layers) {
      refuse(
          name, "has {} elements, expected one for each of {} layers", numbers->size(), n_layers);
    }
    auto other = std::find_if(numbers->begin(), numbers->end(), [&](int64_t number) {
      return number != numbers->front();
    });
    if (other != numbers->end()) {
      refuse(
          name, "differs between layers ({} in layer 0, {} in layer {}): that is not supported",
          numbers->front(), *other, other - numbers->begin());
    }
    if (numbers->front() < 0) refuse(name, "is {}, expected 1 to {}", numbers->front(), most);
    return check_range(name, static_cast<uint64_t>(numbers->front()), 1, most);
  }

  uint32_t require_uniform(std::string_view name, uint32_t n_layers, uint64_t most) const {
    std::optional<uint32_t> value = find_uniform(name, n_layers, most);
    if (!value.has_value()) refuse(name, "is missing");
    return *value;
  }

  void read_heads(ModelConfig& config) const {
    config.n_heads = require_uniform("attention.head_count", config.n_layers, kMaxHeads);
    config.n_kv_heads = find_uniform("attention.head_count_kv", config.n_layers, kMaxHeads)
                            .value_or(config.n_heads);
    if (config.n_heads % config.n_kv_heads != 0) {
      refuse(
          "attention.head_count_kv", "is {}, expected a divisor of the {} heads", config.n_kv_heads,
          config.n_heads);
    }
    std::optional<uint64_t> key_length = model_.find_unsigned(key("attention.key_length"));
    std::optional<uint64_t> value_length = model_.find_unsigned(key("attention.value_length"));
    if (!key_length.has_value() || !value_length.has_value()) {
      if (config.dim % config.n_heads != 0) {
        refuse(
            "attention.head_count", "is {}, expected a divisor of the embedding length {}",
            config.n_heads, config.dim);
      }
    }
    uint64_t derived = config.dim / config.n_heads;
    config.head_dim =
        check_range("attention.key_length", key_length.value_or(derived), 2, kMaxHeadDim);
    if (value_length.value_or(derived) != config.head_dim) {
      refuse(
          "attention.value_length",
          "is {}, but keys have {} elements: different lengths are not "
          "supported",
          value_length.value_or(derived), config.head_dim);
    }
    uint64_t q_dim = uint64_t{config.n_heads} * config.head_dim;
    if (q_dim > kMaxFfDim) {
      refuse(
          "attention.head_count",
          "is {}: with {} elements a head that is {}, at most {} are "
          "supported",
          config.n_heads, config.head_dim, q_dim, kMaxFfDim);
    }
  }

  float read_epsilon() const {
    constexpr std::string_view kName = "attention.layer_norm_rms_epsilon";
    std::optional<double> number = model_.find_number(key(kName));
    if (!number.has_value()) refuse(kName, "is missing");
    auto epsilon = static_cast<float>(*number);
    if (!std::isfinite(epsilon) || epsilon <= 0 || epsilon >= 1) {
      refuse(kName, "is {}, expected a number above 0 and below 1", *number);
    }
    return epsilon;
  }

  double find_positive(std::string_view name, double fallback) const {
    double number = model_.find_number(key(name)).value_or(fallback);
    if (!std::isfinite(number) || number <= 0) {
      refuse(name, "is {}, expected a finite number above 0", number);
    }
    return number;
  }

  // By how much linear scaling slows the rotation.
  double read_rope_factor() const {
    const std::string* type = model_.find_string(key("rope.scaling.type"));
    if (type != nullptr && *type == "none") return 1.0;
    if (type != nullptr && *type != "linear") {
      refuse(
          "rope.scaling.type", "is {}, which is not supported; known are 'none' and 'linear'",
          quoted_for_message(*type));
    }
    double factor = find_positive("rope.scaling.factor", 1.0);
    double old_factor = find_positive("rope.scale_linear", 1.0);
    if (model_.find(key("rope.scaling.factor")) == nullptr) return old_factor;
    if (model_.find(key("rope.scale_linear")) != nullptr && factor != old_factor) {
      refuse(
          "rope.scale_linear", "is {}, but '{}' is {}", old_factor, key("rope.scaling.factor"),
          factor);
    }
    return factor;
  }

  void read_rope(const std::vector<float>& rope_freqs, ModelConfig& config) const {
    uint64_t n_rot = model_.find_unsigned(key("rope.dimension_count")).value_or(config.head_dim);
    if (n_rot != config.head_dim || n_rot % 2 != 0) {
      refuse(
          "rope.dimension_count",
          "is {}, expected an even number equal to the {} elements of a "
          "head",
          n_rot, config.head_dim);
    }
    config.n_rot = static_cast<uint32_t>(n_rot);
    uint32_t n_pairs = config.n_rot / 2;
    if (!rope_freqs.empty() && rope_freqs.size() != n_pairs) {
      fail(
          ErrorKind::model, "{}: tensor 'rope_freqs.weight' has {} elements, expected {}",
          model_.name(), rope_freqs.size(), n_pairs);
    }
    double base = find_positive("rope.freq_base", kDefaultRopeBase);
    double factor = read_rope_factor();
    for (uint32_t pair = 0; pair < n_pairs; ++pair) {
      double divisor = rope_freqs.empty() ? 1.0 : static_cast<double>(rope_freqs[pair]);
      double frequency =
          std::pow(base, -2.0 * pair / static_cast<double>(config.n_rot)) / factor / divisor;
      if (!std::isfinite(frequency) || divisor <= 0) {
        fail(
            ErrorKind::model,
            "{}: rotation of pair {} is impossible (base {}, factor {}, rope_freqs {})",
            model_.name(), pair, base, factor, divisor);
      }
      config.rope_frequencies.push_back(frequency);
    }
  }

  void read_vocabulary(ModelConfig& config) const {
    constexpr std::string_view kEmbedding = "token_embd.weight";
    const GgufTensor* embedding = model_.find_tensor(kEmbedding);
    if (embedding == nullptr) {
      fail(ErrorKind::model, "{}: tensor '{}' is missing", model_.name(), kEmbedding);
    }
    uint64_t n_vocab = embedding->dims.size() < 2 ? 1 : embedding->dims[1];
    if (n_vocab > kMaxVocab) {
      fail(
          ErrorKind::model, "{}: tensor '{}' has {} rows, at most {} are supported", model_.name(),
          kEmbedding, n_vocab, kMaxVocab);
    }
    config.n_vocab = static_cast<uint32_t>(n_vocab);
    config.tied_output = model_.find_tensor("output.weight") == nullptr;
  }

  const GgufModel& model_;
};

std::vector<float> read_rope_freqs(const GgufModel& model) {
  const GgufTensor* tensor = model.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  uint64_t n_elems = tensor->n_elems();
  if (tensor->ggml_type != static_cast<uint32_t>(QuantType::f32) || n_elems > kMaxHeadDim) {
    fail(
        ErrorKind::model,
        "{}: tensor 'rope_freqs.weight' has {} elements of {}, expected at most {} of F32",
        model.name(), n_elems, find_quant_traits(tensor->ggml_type)->name, kMaxHeadDim);
  }
  std::vector<float> values(n_elems);
  model.read_tensor(*tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

void check_architecture(const GgufModel& model) {
  if (model.tensors().empty()) {
    fail(
        ErrorKind::model, "{}: vocabulary only: there are no tensors, so it cannot run",
        model.name());
  }
  std::string architecture = model.architecture();
  if (architecture == "llama") return;
  fail(
      ErrorKind::model, "{}: architecture {} is not supported yet; known: {}", model.name(),
      quoted_for_message(architecture), known_architectures());
}

}  // namespace

ModelConfig read_model_config(const GgufModel& model, const std::vector<float>& rope_freqs) {
  check_architecture(model);
  return LlamaKeys(model).read(rope_freqs);
}

ModelConfig read_model_config(const GgufModel& model) {
  check_architecture(model);
  return read_model_config(model, read_rope_freqs(model));
}

void check_vocabulary_size(const GgufModel& model, const ModelConfig& config) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const GgufArray* tokens = model.find_array(kTokens);
  if (tokens == nullptr) fail(ErrorKind::model, "{}: key '{}' is missing", model.name(), kTokens);
  if (tokens->size() == config.n_vocab) return;
  fail(
      ErrorKind::model,
      "{}: key '{}' has {} tokens, but 'token_embd.weight' has {} rows; expected "
      "one row a token",
      model.name(), kTokens, tokens->size(), config.n_vocab);
}

std::string known_architectures() {
  return "llama";
}

}  // namespace nightsweep
