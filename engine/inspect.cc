#include "engine/inspect.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "engine/llama_tensors.h"

namespace nightsweep {

namespace {

constexpr std::string_view kChatTemplate = "tokenizer.chat_template";

// A value of any type as a person reads it.
std::string value_text(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return *text;
  if (const auto* array = std::get_if<GgufArray>(&value.value)) {
    return format("{} x {}", array->size(), gguf_type_name(array->element_type));
  }
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value.value)) {
    // The shortest text that gives the same f32, not the digits of its double.
    return value.type == GgufType::f32 ? format("{}", static_cast<float>(*real))
                                       : format("{}", *real);
  }
  if (const auto* large = std::get_if<uint64_t>(&value.value)) return format("{}", *large);
  return format("{}", std::get<int64_t>(value.value));
}

Json value_json(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return *text;
  if (const auto* array = std::get_if<GgufArray>(&value.value)) {
    return Json::Object{
        {"type", gguf_type_name(array->element_type)},
        {"count", static_cast<uint64_t>(array->size())}};
  }
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  if (const auto* real = std::get_if<double>(&value.value)) {
    if (!std::isfinite(*real)) return value_text(value);
    return *real;
  }
  if (const auto* large = std::get_if<uint64_t>(&value.value)) return *large;
  return std::get<int64_t>(value.value);
}

// Keys of any type: inspect shows a file whose metadata loading would refuse.
std::string key_text(const GgufModel& model, std::string_view key) {
  const GgufValue* value = model.find(key);
  return value == nullptr ? std::string() : value_text(*value);
}

void add_tensors(const GgufModel& model, InspectReport& report) {
  for (const GgufTensor& tensor : model.tensors()) {
    report.n_params += tensor.n_elems();
    report.weight_bytes += tensor.size_bytes;
    std::string name = find_quant_traits(tensor.ggml_type)->name;
    auto type = std::find_if(
        report.types.begin(), report.types.end(),
        [&](const InspectedType& known) { return known.name == name; });
    if (type == report.types.end()) type = report.types.insert(type, {name, 0, 0});
    ++type->n_tensors;
    type->size_bytes += tensor.size_bytes;
  }
  std::sort(report.types.begin(), report.types.end(), [](const auto& a, const auto& b) {
    return a.size_bytes > b.size_bytes;
  });
}

void add_shape(const GgufModel& model, InspectReport& report) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kLabels = {{
      {"block_count", "layers"},
      {"embedding_length", "embedding length"},
      {"feed_forward_length", "feed-forward length"},
      {"attention.head_count", "heads"},
      {"attention.head_count_kv", "heads of keys and values"},
      {"attention.key_length", "head length"},
      {"attention.sliding_window", "sliding window"},
      {"expert_count", "experts"},
      {"expert_used_count", "experts used"},
      {"context_length", "context"},
      {"rope.freq_base", "RoPE base"},
      {"rope.dimension_count", "RoPE dimensions"},
      {"rope.scaling.type", "RoPE scaling"},
      {"rope.scaling.factor", "RoPE scaling factor"},
  }};
  std::string architecture = key_text(model, "general.architecture");
  for (const auto& [key, label] : kLabels) {
    std::string text = key_text(model, format("{}.{}", architecture, key));
    if (!text.empty()) report.shape.emplace_back(label, text);
  }
  if (model.find_tensor("rope_freqs.weight") != nullptr) {
    report.shape.emplace_back("RoPE factors", "rope_freqs.weight");
  }
}

void add_tokenizer_keys(const GgufModel& model, InspectReport& report) {
  report.tokenizer = key_text(model, "tokenizer.ggml.model");
  std::string rule = key_text(model, "tokenizer.ggml.pre");
  if (!rule.empty()) report.tokenizer += "/" + rule;
  const GgufValue* tokens = model.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && std::holds_alternative<GgufArray>(tokens->value)) {
    report.n_tokens = std::get<GgufArray>(tokens->value).size();
  }
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  constexpr std::string_view kSuffix = "_token_id";
  for (const auto& [key, value] : model.keys()) {
    if (!key.starts_with(kPrefix) || !key.ends_with(kSuffix)) continue;
    if (key.size() <= kPrefix.size() + kSuffix.size()) continue;
    report.special_ids.emplace_back(
        key.substr(kPrefix.size(), key.size() - kPrefix.size() - kSuffix.size()),
        value_text(value));
  }
  report.chat_template_bytes = key_text(model, kChatTemplate).size();
}

// Keys and values of one token, all layers.
uint64_t kv_bytes_f16(const ModelConfig& config) {
  return 2 * config.kv_elems_per_token();
}

// Blocks of 32 values and a scale, of each head.
uint64_t kv_bytes_q8_0(const ModelConfig& config) {
  const QuantTraits& traits = quant_traits(QuantType::q8_0);
  uint64_t blocks = (config.head_dim + traits.block_elems - 1) / traits.block_elems;
  return config.kv_elems_per_token() / config.head_dim * blocks * traits.block_bytes;
}

// One line each, terminal escapes of a hostile file made harmless.
class PrintedTable {
 public:
  void add(std::string_view label, std::string_view value) {
    constexpr size_t kLongestValue = 1000;
    text_ += format("{:<25} ", label);
    for (char c : value.substr(0, kLongestValue)) {
      bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      text_ += is_control ? ' ' : c;
    }
    if (value.size() > kLongestValue) text_ += "...";
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string count_text(uint64_t count) {
  if (count < 1'000'000) return format("{}", count);
  double millions = static_cast<double>(count) * 1e-6;
  return millions < 1000 ? format("{:.1f} million", millions)
                         : format("{:.2f} billion", millions * 1e-3);
}

std::string types_text(const InspectReport& report) {
  std::string text;
  for (const InspectedType& type : report.types) {
    text += format(
        "{}{} in {} of {}", text.empty() ? "" : ", ", size_text(type.size_bytes), type.n_tensors,
        type.name);
  }
  return text;
}

std::string special_ids_text(const InspectReport& report) {
  std::string text;
  for (const auto& [name, id] : report.special_ids) {
    text += format("{}{} {}", text.empty() ? "" : ", ", name, id);
  }
  return text;
}

}  // namespace

InspectReport inspect_model(const GgufModel& model) {
  InspectReport report;
  add_tensors(model, report);
  add_shape(model, report);
  add_tokenizer_keys(model, report);
  try {
    report.config = read_model_config(model);
    check_llama_tensors(model, *report.config);
    check_vocabulary_size(model, *report.config);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    report.why_not = error.what();
  }
  return report;
}

std::string inspect_text(const GgufModel& model, const InspectReport& report) {
  PrintedTable table;
  for (size_t i = 0; i < model.paths().size(); ++i) {
    table.add(
        i == 0 ? "file" : "",
        format("{} ({})", model.paths()[i], size_text(model.file_bytes()[i])));
  }
  table.add("format", format("GGUF {}, alignment {}", model.version(), model.alignment()));
  table.add("architecture", key_text(model, "general.architecture"));
  for (auto [label, key] : {std::pair{"name", "general.name"}, {"licence", "general.license"}}) {
    std::string text = key_text(model, key);
    if (!text.empty()) table.add(label, text);
  }
  table.add(
      "parameters",
      format("{} in {} tensors", count_text(report.n_params), model.tensors().size()));
  if (!report.types.empty()) {
    table.add("memory for the weights", size_text(report.weight_bytes));
    table.add("tensor types", types_text(report));
  }
  for (const auto& [label, text] : report.shape)
    table.add(label, text);
  if (report.config.has_value()) {
    const ModelConfig& config = *report.config;
    table.add("output matrix", config.tied_output ? "the embedding (tied)" : "its own");
    table.add(
        "KV cache of a token", format(
                                   "{} in f16, {} in q8_0", size_text(kv_bytes_f16(config)),
                                   size_text(kv_bytes_q8_0(config))));
  }
  table.add("tokenizer", format("{}, {} tokens", report.tokenizer, report.n_tokens));
  table.add("special tokens", special_ids_text(report));
  table.add(
      "chat template",
      report.chat_template_bytes == 0 ? "none" : size_text(report.chat_template_bytes));
  for (const std::string& note : report.notes)
    table.add("note", note);
  table.add("fingerprint", model.fingerprint());
  table.add("can run", report.why_not.empty() ? "yes" : "no");
  return table.take();
}

Json inspect_json(const GgufModel& model, const InspectReport& report) {
  Json::Array files;
  for (size_t i = 0; i < model.paths().size(); ++i) {
    files.emplace_back(Json::Object{{"path", model.paths()[i]}, {"bytes", model.file_bytes()[i]}});
  }
  Json::Array types;
  for (const InspectedType& type : report.types) {
    types.emplace_back(
        Json::Object{{"type", type.name}, {"tensors", type.n_tensors}, {"bytes", type.size_bytes}});
  }
  Json::Array tensors;
  for (const GgufTensor& tensor : model.tensors()) {
    Json::Array shape;
    for (uint64_t dim : tensor.dims)
      shape.emplace_back(dim);
    tensors.emplace_back(Json::Object{
        {"name", tensor.name},
        {"type", find_quant_traits(tensor.ggml_type)->name},
        {"shape", std::move(shape)},
        {"bytes", tensor.size_bytes}});
  }
  Json config;
  if (report.config.has_value()) {
    const ModelConfig& c = *report.config;
    config = Json::Object{
        {"n_layers", c.n_layers},
        {"dim", c.dim},
        {"ff_dim", c.ff_dim},
        {"n_heads", c.n_heads},
        {"n_kv_heads", c.n_kv_heads},
        {"head_dim", c.head_dim},
        {"n_rot", c.n_rot},
        {"n_vocab", c.n_vocab},
        {"context_tokens", c.context_tokens},
        {"norm_epsilon", static_cast<double>(c.norm_epsilon)},
        {"tied_output", c.tied_output},
        {"kv_bytes_per_token", Json::Object{{"f16", kv_bytes_f16(c)}, {"q8_0", kv_bytes_q8_0(c)}}}};
  }
  Json::Object special_ids;
  for (const auto& [name, unused] : report.special_ids) {
    special_ids.emplace_back(
        name, value_json(*model.find(format("tokenizer.ggml.{}_token_id", name))));
  }
  Json::Array notes;
  for (const std::string& note : report.notes)
    notes.emplace_back(note);
  Json::Object metadata;
  for (const auto& [key, value] : model.keys())
    metadata.emplace_back(key, value_json(value));
  return Json::Object{
      {"file", model.name()},
      {"files", std::move(files)},
      {"version", model.version()},
      {"alignment", model.alignment()},
      {"fingerprint", model.fingerprint()},
      {"architecture", key_text(model, "general.architecture")},
      {"can_run", report.why_not.empty()},
      {"why_not", report.why_not.empty() ? Json() : Json(report.why_not)},
      {"notes", std::move(notes)},
      {"parameters", report.n_params},
      {"weight_bytes", report.weight_bytes},
      {"types", std::move(types)},
      {"config", std::move(config)},
      {"tokenizer",
       Json::Object{
           {"kind", report.tokenizer},
           {"tokens", report.n_tokens},
           {"special_ids", std::move(special_ids)}}},
      {"has_chat_template", report.chat_template_bytes != 0},
      {"metadata", std::move(metadata)},
      {"tensors", std::move(tensors)}};
}

void write_tensor_values(
    const GgufModel& model,
    std::string_view tensor_name,
    const std::function<void(std::string_view)>& write) {
  const GgufTensor* tensor = model.find_tensor(tensor_name);
  if (tensor == nullptr) {
    fail(
        ErrorKind::usage, "{}: there is no tensor {} (inspect --json lists all)", model.name(),
        quoted_for_message(tensor_name));
  }
  const QuantTraits& traits = *find_quant_traits(tensor->ggml_type);
  if (!traits.can_compute) {
    fail(
        ErrorKind::model, "{}: tensor {} is of type {}, which cannot be decoded yet", model.name(),
        quoted_for_message(tensor_name), traits.name);
  }
  // A multiple of every block.
  constexpr uint64_t kPieceElems = 256 * 1024;
  uint64_t n_elems = tensor->n_elems();
  std::vector<std::byte> blocks;
  std::vector<float> values;
  for (uint64_t done = 0; done < n_elems;) {
    uint64_t n = std::min(kPieceElems, n_elems - done);
    blocks.resize(n / traits.block_elems * traits.block_bytes);
    values.resize(n);
    model.read_tensor(*tensor, done / traits.block_elems * traits.block_bytes, blocks);
    dequantize(static_cast<QuantType>(tensor->ggml_type), blocks.data(), values.data(), n);
    write({reinterpret_cast<const char*>(values.data()), n * sizeof(float)});
    done += n;
  }
}

}  // namespace nightsweep
