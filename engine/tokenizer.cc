#include "engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/bpe.h"
#include "engine/character_bpe.h"
#include "engine/pre_tokenizer.h"
#include "engine/spm.h"

namespace nightsweep {

namespace {

// Texts at which answers end in the families of today, whatever the file's keys forget. They count
// only as control tokens: an ordinary `</s>` of some vocabulary is text like any other.
constexpr std::array<std::string_view, 20> kEndTexts = {
    "<|eot_id|>", "<|eom_id|>",    "<|im_end|>",      "<|end|>",       "<|return|>",
    "<|call|>",   "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<EOT>",      "[EOS]",         "[EOT]",           "<eos>",         "<|flush|>",
    "<|calls|>",  "<turn|>",       "<|fim_pad|>",     "<|repo_name|>", "<|file_sep|>",
};

int64_t checked_id(const TokenData& data, std::string_view key, uint64_t id) {
  if (id >= data.texts.size()) {
    fail(
        ErrorKind::model, "{}: {}: expected one of the {} tokens (0 to {}), found {}", data.source,
        key, data.texts.size(), data.texts.size() - 1, id);
  }
  return static_cast<int64_t>(id);
}

// A file without types cannot say which tokens are special: the keys tell a few.
void fill_in_types(TokenData& data) {
  if (!data.types.empty()) return;
  log_warning(
      "{}: tokenizer.ggml.token_type is missing: only the tokens that the file's keys name are "
      "taken for control tokens",
      data.source);
  data.types.assign(data.texts.size(), TokenType::normal);
  const auto mark = [&](uint64_t id, TokenType type) {
    if (id < data.types.size()) data.types[id] = type;
  };
  if (data.model != "gpt2") {
    for (size_t id = 0; id < data.texts.size(); ++id) {
      if (byte_of_token_text(data.texts[id])) data.types[id] = TokenType::byte;
    }
  }
  if (data.bos) mark(*data.bos, TokenType::control);
  if (data.eos) mark(*data.eos, TokenType::control);
  for (const TokenData::EndKey& end : data.ends)
    mark(end.id, TokenType::control);
  if (data.unknown && data.unknown != data.bos && data.unknown != data.eos) {
    mark(*data.unknown, TokenType::unknown);
  }
}

void refuse_space_prefix(const TokenData& data) {
  if (!data.adds_space_prefix.value_or(false)) return;
  fail(
      ErrorKind::model,
      "{}: tokenizer.ggml.add_space_prefix: expected false for a '{}' tokenizer, found true",
      data.source, data.model);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const GgufModel& model) {
  return std::make_unique<Tokenizer>(read_token_data(model));
}

Tokenizer::Tokenizer(TokenData data) {
  if (data.model != "gpt2" && data.model != "llama" && data.model != "gemma4") {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.model: expected a known kind (gemma4, gpt2, llama), found '{}'",
        data.source, data.model);
  }
  if (data.texts.empty()) {
    fail(ErrorKind::model, "{}: tokenizer.ggml.tokens: expected tokens, found none", data.source);
  }
  if (data.model == "llama") {
    // What SentencePiece itself assigns where nothing else is said.
    if (!data.unknown && data.texts.size() > 2) data.unknown = 0;
    if (!data.bos && data.texts.size() > 2) data.bos = 1;
    if (!data.eos && data.texts.size() > 2) data.eos = 2;
  }
  fill_in_types(data);
  set_up_special_ids(data);
  if (data.model == "llama") {
    set_up_spm(data);
  } else if (data.model == "gemma4" || data.pre == "gemma4") {
    set_up_character_bpe(data);
  } else {
    set_up_bpe(data);
  }
  if (adds_bos_ && bos_ < 0) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.bos_token_id: expected a token, as prompts of this model begin with "
        "it, found none",
        data.source);
  }
  if (adds_eos_ && eos_ < 0) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.eos_token_id: expected a token, as tokenizer.ggml.add_eos_token is "
        "set, found none",
        data.source);
  }
  set_up_end_of_generation(data);
  special_tokens_ = std::make_unique<SpecialTokens>(data);
  set_up_bytes(data);
}

void Tokenizer::set_up_bpe(const TokenData& data) {
  std::string name = data.pre.value_or("default");
  if (name == "default") {
    const std::string_view family = pre_tokenizer_of_architecture(data.architecture);
    name = family.empty() ? "gpt-2" : family;
    log_warning(
        "{}: tokenizer.ggml.pre does not say how this model cuts text into pieces: taking the rule "
        "{}{}, which may give OTHER TOKENS than the model was trained on; convert the model again "
        "with a current converter",
        data.source, name, family.empty() ? "" : ", after general.architecture");
  }
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(name);
  if (rule == nullptr) {
    fail(
        ErrorKind::model, "{}: tokenizer.ggml.pre: expected a known pre-tokenizer ({}), found '{}'",
        data.source, known_pre_tokenizer_names(), name);
  }
  adds_bos_ = data.adds_bos.value_or(rule->adds_bos);
  adds_eos_ = data.adds_eos.value_or(false);
  description_ = "gpt2/" + name;
  refuse_space_prefix(data);
  encoder_ = std::make_unique<BytePairEncoder>(data, *rule);
}

void Tokenizer::set_up_character_bpe(const TokenData& data) {
  const std::string name = data.pre.value_or("default");
  if (name != "default" && name != "gemma4") {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.pre: expected gemma4 for a 'gemma4' tokenizer, found '{}'", data.source,
        name);
  }
  adds_bos_ = data.adds_bos.value_or(true);
  adds_eos_ = data.adds_eos.value_or(false);
  description_ = "gemma4/" + name;
  refuse_space_prefix(data);
  encoder_ = std::make_unique<CharacterPairEncoder>(data);
}

void Tokenizer::set_up_spm(TokenData& data) {
  adds_bos_ = data.adds_bos.value_or(true);
  adds_eos_ = data.adds_eos.value_or(false);
  description_ = "llama/" + data.pre.value_or("default");
  encoder_ = std::make_unique<ScoreMergeEncoder>(data, data.adds_space_prefix.value_or(true));
}

void Tokenizer::set_up_special_ids(const TokenData& data) {
  if (data.bos) bos_ = checked_id(data, "tokenizer.ggml.bos_token_id", *data.bos);
  if (data.eos) eos_ = checked_id(data, "tokenizer.ggml.eos_token_id", *data.eos);
  if (data.unknown) checked_id(data, "tokenizer.ggml.unknown_token_id", *data.unknown);
  for (const TokenData::EndKey& end : data.ends)
    checked_id(data, end.key, end.id);
}

void Tokenizer::set_up_end_of_generation(const TokenData& data) {
  std::vector<uint32_t> others;
  for (const TokenData::EndKey& end : data.ends)
    others.push_back(static_cast<uint32_t>(end.id));

  std::unordered_map<std::string_view, uint32_t> controls;
  for (uint32_t id = 0; id < data.texts.size(); ++id) {
    if (data.types[id] == TokenType::control) controls.emplace(data.texts[id], id);
  }
  // gpt-oss: an answer goes through several messages, each closed by <|end|>.
  const bool end_closes_a_message =
      controls.contains("<|return|>") && controls.contains("<|call|>");
  for (std::string_view text : kEndTexts) {
    const auto found = controls.find(text);
    if (found == controls.end() || (text == "<|end|>" && end_closes_a_message)) continue;
    others.push_back(found->second);
  }

  std::ranges::sort(others);
  if (eos_ >= 0) end_of_generation_.push_back(static_cast<uint32_t>(eos_));
  for (uint32_t id : others) {
    if (!is_end_of_generation(id)) end_of_generation_.push_back(id);
  }
  if (end_of_generation_.empty()) {
    log_warning(
        "{}: no token is known to end an answer (tokenizer.ggml.eos_token_id is missing): every "
        "answer runs to its token limit",
        data.source);
  }
}

void Tokenizer::set_up_bytes(TokenData& data) {
  types_ = std::move(data.types);
  bytes_ = std::move(data.texts);
  for (size_t id = 0; id < bytes_.size(); ++id) {
    std::string& text = bytes_[id];
    if (types_[id] == TokenType::normal || types_[id] == TokenType::unused) {
      text = encoder_->bytes_of(text);
    } else if (types_[id] == TokenType::byte) {
      if (const auto byte = byte_of_token_text(text)) text.assign(1, static_cast<char>(*byte));
    }
  }
}

std::vector<uint32_t> Tokenizer::encode(std::span<const TextSpan> spans, bool add_special) const {
  std::string text;
  std::vector<SpecialTokens::Range> trusted;
  for (const TextSpan& span : spans) {
    const size_t begin = text.size();
    text += span.text;
    if (!span.parse_special || span.text.empty()) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }
  return encode_ranges(text, trusted, add_special);
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special)
    const {
  std::vector<SpecialTokens::Range> trusted;
  if (parse_special) trusted.push_back({0, text.size()});
  return encode_ranges(text, trusted, add_special);
}

std::vector<uint32_t> Tokenizer::encode_ranges(
    std::string_view text,
    const std::vector<SpecialTokens::Range>& trusted,
    bool add_special) const {
  std::vector<uint32_t> ids;
  size_t begin = 0;
  while (begin < text.size()) {
    const auto match = special_tokens_->find(text, begin, trusted);
    const size_t ordinary_end = match ? match->begin : text.size();
    if (ordinary_end > begin) encoder_->encode(text.substr(begin, ordinary_end - begin), ids);
    if (match) ids.push_back(match->id);
    begin = match ? match->end : text.size();
  }
  if (add_special && adds_bos_ && (ids.empty() || ids.front() != bos_)) {
    ids.insert(ids.begin(), static_cast<uint32_t>(bos_));
  }
  if (add_special && adds_eos_) ids.push_back(static_cast<uint32_t>(eos_));
  return ids;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special) const {
  std::string text;
  for (uint32_t id : ids) {
    if (!skip_special || !is_control(id)) text += bytes_[id];
  }
  return text;
}

bool Tokenizer::is_end_of_generation(uint32_t id) const {
  return std::ranges::find(end_of_generation_, id) != end_of_generation_.end();
}

}  // namespace nightsweep
