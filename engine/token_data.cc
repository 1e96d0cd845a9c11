#include "engine/token_data.h"

#include <array>

#include "base/error.h"
#include "base/json.h"

namespace nightsweep {

namespace {

constexpr std::string_view kArchitecture = "general.architecture";
constexpr std::string_view kHuggingFace = "tokenizer.huggingface.json";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::array<std::string_view, 5> kEndKeys = {
    "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
};

template <typename Values>
const Values&
values_of(const GgufModel& model, std::string_view key, const GgufArray& array, const char* what) {
  const auto* values = std::get_if<Values>(&array.values);
  if (values == nullptr) {
    fail(
        ErrorKind::model, "{}: {}: expected an array of {}, found an array of {}", model.name(),
        key, what, gguf_type_name(array.element_type));
  }
  return *values;
}

std::vector<std::string> find_strings(const GgufModel& model, std::string_view key) {
  const GgufArray* array = model.find_array(key);
  if (array == nullptr || array->size() == 0) return {};
  return values_of<std::vector<std::string>>(model, key, *array, "strings");
}

void check_length(const GgufModel& model, std::string_view key, size_t n_found, size_t n_tokens) {
  if (n_found == n_tokens) return;
  fail(
      ErrorKind::model, "{}: {}: expected one value for each of the {} tokens, found {}",
      model.name(), key, n_tokens, n_found);
}

std::vector<float> find_scores(const GgufModel& model, size_t n_tokens) {
  const GgufArray* array = model.find_array(kScores);
  if (array == nullptr) return {};
  check_length(model, kScores, array->size(), n_tokens);
  std::vector<float> scores;
  scores.reserve(n_tokens);
  for (double score : values_of<std::vector<double>>(model, kScores, *array, "floats")) {
    scores.push_back(static_cast<float>(score));
  }
  return scores;
}

std::vector<TokenType> find_types(const GgufModel& model, size_t n_tokens) {
  const GgufArray* array = model.find_array(kTypesKey);
  if (array == nullptr) return {};
  check_length(model, kTypesKey, array->size(), n_tokens);
  std::vector<TokenType> types;
  types.reserve(n_tokens);
  for (int64_t type : values_of<std::vector<int64_t>>(model, kTypesKey, *array, "integers")) {
    if (type < static_cast<int64_t>(TokenType::normal) ||
        type > static_cast<int64_t>(TokenType::byte)) {
      fail(
          ErrorKind::model, "{}: {}: token {}: expected a type from 1 to 6, found {}", model.name(),
          kTypesKey, types.size(), type);
    }
    types.push_back(static_cast<TokenType>(type));
  }
  return types;
}

// `added_tokens` of a tokenizer.json, which some files carry whole: [{"id", "lstrip", "rstrip"}].
void read_strips_of_json(const GgufModel& model, const std::string& text, TokenData& data) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const JsonError& error) {
    fail(
        ErrorKind::model, "{}: {}: expected JSON, found an error at byte {}: {}", model.name(),
        kHuggingFace, error.offset(), error.what());
  }
  const Json* added = root.find("added_tokens");
  if (added == nullptr || !added->is_array()) return;
  for (const Json& token : added->as_array()) {
    const Json* id_value = token.find("id");
    int64_t id = -1;
    if (id_value == nullptr || !id_value->to_integer(id)) continue;
    if (id < 0 || static_cast<uint64_t>(id) >= data.texts.size()) continue;
    const auto is_set = [&](const char* key) {
      const Json* flag = token.find(key);
      return flag != nullptr && flag->is_bool() && flag->as_bool();
    };
    if (is_set("lstrip")) data.strips_left.push_back(static_cast<uint32_t>(id));
    if (is_set("rstrip")) data.strips_right.push_back(static_cast<uint32_t>(id));
  }
}

// GGUF has no key of its own for it: a tokenizer.json in the file tells, or the family. Phi-3 marks
// its control tokens so, but for these.
void read_strips(const GgufModel& model, TokenData& data) {
  if (const std::string* text = model.find_string(kHuggingFace)) {
    read_strips_of_json(model, *text, data);
    return;
  }
  if (data.architecture != "phi3" || data.model != "llama" || data.types.empty()) return;
  for (uint32_t id = 0; id < data.texts.size(); ++id) {
    const std::string& token = data.texts[id];
    const bool keeps_blanks = token == "<s>" || token == "<unk>" || token == "<|endoftext|>";
    if (data.types[id] == TokenType::control && !keeps_blanks) data.strips_right.push_back(id);
  }
}

}  // namespace

TokenData read_token_data(const GgufModel& model) {
  TokenData data;
  data.source = model.name();
  if (const std::string* name = model.find_string(kArchitecture)) data.architecture = *name;
  data.model = model.require_string("tokenizer.ggml.model");
  if (const std::string* pre = model.find_string("tokenizer.ggml.pre")) data.pre = *pre;
  data.texts = find_strings(model, kTokens);
  data.merges = find_strings(model, kMerges);
  data.scores = find_scores(model, data.texts.size());
  data.types = find_types(model, data.texts.size());
  data.bos = model.find_unsigned("tokenizer.ggml.bos_token_id");
  data.eos = model.find_unsigned("tokenizer.ggml.eos_token_id");
  data.unknown = model.find_unsigned("tokenizer.ggml.unknown_token_id");
  for (std::string_view key : kEndKeys) {
    if (auto id = model.find_unsigned(key)) data.ends.push_back({std::string(key), *id});
  }
  data.adds_bos = model.find_bool("tokenizer.ggml.add_bos_token");
  data.adds_eos = model.find_bool("tokenizer.ggml.add_eos_token");
  data.adds_space_prefix = model.find_bool("tokenizer.ggml.add_space_prefix");
  read_strips(model, data);
  return data;
}

std::optional<uint8_t> byte_of_token_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (char c : text.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<unsigned>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + static_cast<unsigned>(c - 'A') + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

uint8_t require_byte_of_token(const TokenData& data, size_t id) {
  const std::optional<uint8_t> byte = byte_of_token_text(data.texts[id]);
  if (byte) return *byte;
  fail(
      ErrorKind::model,
      "{}: tokenizer.ggml.tokens: token {}: expected the text of a byte token, such as <0x0A>, "
      "found '{}'",
      data.source, id, data.texts[id]);
}

}  // namespace nightsweep
