#include "engine/token_data.h"

#include <array>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
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
  const GgufArray* array = model.find_array(kTypes);
  if (array == nullptr) return {};
  check_length(model, kTypes, array->size(), n_tokens);
  std::vector<TokenType> types;
  types.reserve(n_tokens);
  for (int64_t type : values_of<std::vector<int64_t>>(model, kTypes, *array, "integers")) {
    if (type < static_cast<int64_t>(TokenType::normal) ||
        type > static_cast<int64_t>(TokenType::byte)) {
      fail(
          ErrorKind::model, "{}: {}: token {}: expected a type from 1 to 6, found {}", model.name(),
          kTypes, types.size(), type);
    }
    types.push_back(static_cast<TokenType>(type));
  }
  return types;
}

}  // namespace

TokenData read_token_data(const GgufModel& model) {
  TokenData data;
  data.source = model.name();
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

}  // namespace nightsweep
