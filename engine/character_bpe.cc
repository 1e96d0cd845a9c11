#include "engine/character_bpe.h"

#include <algorithm>

#include "base/error.h"
#include "engine/space_mark.h"
#include "engine/utf8.h"

namespace nightsweep {

namespace {

bool has_mark_behind_other(std::string_view text) {
  return first_word_end(text) != text.size();
}

bool mixes_line_feeds(std::string_view text) {
  const size_t n = static_cast<size_t>(std::ranges::count(text, '\n'));
  return n != 0 && n != text.size();
}

}  // namespace

CharacterPairEncoder::CharacterPairEncoder(const TokenData& data)
    : table_(data.texts.size(), data.merges.size()) {
  if (data.merges.empty()) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.merges: expected the merges that a 'gemma4' tokenizer needs, found "
        "none; convert the model again",
        data.source);
  }
  byte_tokens_.fill(MergeTable::kNoSymbol);
  for (uint32_t id = 0; id < data.texts.size(); ++id) {
    const std::string& text = data.texts[id];
    switch (data.types[id]) {
      case TokenType::byte: {
        const uint8_t byte = require_byte_of_token(data, id);
        if (byte_tokens_[byte] == MergeTable::kNoSymbol) byte_tokens_[byte] = id;
        table_.add_token("");
        break;
      }
      case TokenType::normal:
      case TokenType::unused:
      case TokenType::user_defined:
        table_.add_token(replace_all(text, " ", kSpaceMark));
        break;
      case TokenType::control:
      case TokenType::unknown:
        table_.add_token("");  // text of a user must never merge into one
        break;
    }
  }
  has_byte_tokens_ = std::ranges::find(byte_tokens_, MergeTable::kNoSymbol) == byte_tokens_.end();
  if (data.unknown) unknown_ = static_cast<Symbol>(*data.unknown);

  for (uint32_t rank = 0; rank < data.merges.size(); ++rank) {
    const MergeLine line = split_merge_line(data.source, rank, data.merges[rank]);
    const std::string merged = std::string(line.left) + std::string(line.right);
    words_are_apart_ = words_are_apart_ && !has_mark_behind_other(merged);
    lines_are_apart_ = lines_are_apart_ && !mixes_line_feeds(merged);
    table_.add_merge(
        table_.intern(line.left), table_.intern(line.right), {rank, table_.intern(merged)});
  }
}

std::string CharacterPairEncoder::bytes_of(std::string_view token_text) const {
  return replace_all(token_text, kSpaceMark, " ");
}

size_t CharacterPairEncoder::piece_end(std::string_view text) const {
  size_t end = text.size();
  if (lines_are_apart_) {
    end = text[0] == '\n' ? text.find_first_not_of('\n') : text.find('\n');
    end = std::min(end, text.size());
  }
  return words_are_apart_ ? first_word_end(text.substr(0, end)) : end;
}

void CharacterPairEncoder::encode(std::string_view text, std::vector<uint32_t>& out) const {
  const std::string marked = replace_all(text, " ", kSpaceMark);
  MergeTable::Scratch scratch;
  std::string_view rest = marked;
  while (!rest.empty()) {
    const size_t n_bytes = piece_end(rest);
    encode_piece(rest.substr(0, n_bytes), scratch, out);
    rest.remove_prefix(n_bytes);
  }
}

void CharacterPairEncoder::encode_piece(
    std::string_view piece,
    MergeTable::Scratch& scratch,
    std::vector<uint32_t>& out) const {
  // Files exist whose merges lack those of line feeds: a run of them that is a token is that token.
  if (piece.find_first_not_of('\n') == std::string_view::npos) {
    const Symbol token = table_.find(piece);
    if (token < table_.n_tokens()) {
      out.push_back(token);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  while (!piece.empty()) {
    const size_t n_bytes = first_utf8_unit(piece).n_bytes;
    add_symbols(piece.substr(0, n_bytes), symbols);
    piece.remove_prefix(n_bytes);
  }
  table_.merge(scratch);
  bool after_unknown = false;
  for (Symbol symbol : symbols) {
    const bool is_unknown = symbol == unknown_;
    if (symbol >= table_.n_tokens()) {
      // Made by a merge, but no token itself.
      for (char byte : table_.text(symbol)) {
        const Symbol token = byte_tokens_[static_cast<uint8_t>(byte)];
        if (token != MergeTable::kNoSymbol) out.push_back(token);
      }
    } else if (!is_unknown || !after_unknown) {
      out.push_back(symbol);  // one unknown token for a whole run
    }
    after_unknown = is_unknown;
  }
}

void CharacterPairEncoder::add_symbols(std::string_view character, std::vector<Symbol>& symbols)
    const {
  const Symbol token = table_.find(character);
  if (token < table_.n_tokens()) {
    symbols.push_back(token);
  } else if (has_byte_tokens_) {
    for (char byte : character)
      symbols.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
  } else if (unknown_ != MergeTable::kNoSymbol) {
    symbols.push_back(unknown_);
  } else {
    say_once_that_bytes_are_dropped(character);
  }
}

}  // namespace nightsweep
