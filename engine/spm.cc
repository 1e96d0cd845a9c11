#include "engine/spm.h"

#include <limits>
#include <queue>

#include "base/error.h"
#include "engine/space_mark.h"
#include "engine/utf8.h"

namespace nightsweep {

// A run of bytes that is one symbol so far; taken when it has become part of the one before.
struct ScoreMergeEncoder::Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;  // 0: taken
  uint32_t previous = 0;
  uint32_t next = 0;
};

struct ScoreMergeEncoder::Candidate {
  float score = 0;
  uint32_t place = 0;   // of the left one
  uint32_t length = 0;  // of both together: another one now means stale
  // The queue gives the largest: that is the best score, leftmost.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : place > other.place;
  }
};

struct ScoreMergeEncoder::Scratch {
  std::vector<Symbol> symbols;
  std::priority_queue<Candidate> candidates;
};

ScoreMergeEncoder::ScoreMergeEncoder(const TokenData& data, bool adds_space_prefix)
    : adds_space_prefix_(adds_space_prefix),
      texts_(data.texts),
      scores_(data.scores),
      tokens_(data.texts.size()) {
  if (scores_.size() != texts_.size()) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.scores: expected one score for each of the {} tokens of a 'llama' "
        "tokenizer, found {}; convert the model again",
        data.source, texts_.size(), scores_.size());
  }
  // A NaN has no place in an order: it stands behind everything.
  for (float& score : scores_) {
    if (score != score) score = -std::numeric_limits<float>::infinity();
  }
  if (data.unknown) unknown_ = static_cast<uint32_t>(*data.unknown);

  byte_tokens_.fill(kNoToken);
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    const std::string& text = texts_[id];
    switch (data.types[id]) {
      case TokenType::byte: {
        const uint8_t byte = require_byte_of_token(data, id);
        if (byte_tokens_[byte] == kNoToken) byte_tokens_[byte] = id;
        break;
      }
      case TokenType::normal:
      case TokenType::unused:
      case TokenType::user_defined:
        if (text.empty()) break;
        tokens_.insert(text, id);
        if (first_word_end(text) != text.size()) words_are_apart_ = false;
        break;
      case TokenType::control:
      case TokenType::unknown:
        break;  // text of a user must never merge into one
    }
  }
}

std::string ScoreMergeEncoder::bytes_of(std::string_view token_text) const {
  return replace_all(token_text, kSpaceMark, " ");
}

void ScoreMergeEncoder::encode(std::string_view text, std::vector<uint32_t>& out) const {
  std::string marked;
  if (adds_space_prefix_) marked = kSpaceMark;
  marked += replace_all(text, " ", kSpaceMark);
  if (marked.size() > std::numeric_limits<uint32_t>::max()) {
    fail(ErrorKind::input, "text of {} bytes: expected less than 4 GiB in one run", text.size());
  }

  Scratch scratch;
  std::string_view rest = marked;
  while (!rest.empty()) {
    const size_t n_bytes = words_are_apart_ ? first_word_end(rest) : rest.size();
    encode_word(rest.substr(0, n_bytes), scratch, out);
    rest.remove_prefix(n_bytes);
  }
}

void ScoreMergeEncoder::encode_word(
    std::string_view word,
    Scratch& scratch,
    std::vector<uint32_t>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  for (uint32_t begin = 0; begin < word.size();) {
    const Utf8Unit unit = first_utf8_unit(word.substr(begin));
    const auto place = static_cast<uint32_t>(symbols.size());
    symbols.push_back({begin, unit.n_bytes, place - 1, place + 1});  // the first: never read
    begin += unit.n_bytes;
  }
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i)
    consider(word, i, scratch);

  while (!scratch.candidates.empty()) {
    const Candidate best = scratch.candidates.top();
    scratch.candidates.pop();
    Symbol& left = symbols[best.place];
    if (left.length == 0 || left.next >= symbols.size()) continue;
    Symbol& right = symbols[left.next];
    if (left.length + right.length != best.length) continue;
    left.length = best.length;
    left.next = right.next;
    right.length = 0;
    if (left.next < symbols.size()) symbols[left.next].previous = best.place;
    if (best.place > 0) consider(word, left.previous, scratch);
    consider(word, best.place, scratch);
  }

  bool after_unknown = false;
  for (const Symbol& symbol : symbols) {
    if (symbol.length > 0) emit(word.substr(symbol.begin, symbol.length), after_unknown, out);
  }
}

void ScoreMergeEncoder::consider(std::string_view word, uint32_t place, Scratch& scratch) const {
  const Symbol& left = scratch.symbols[place];
  if (left.next >= scratch.symbols.size()) return;
  const uint32_t length = left.length + scratch.symbols[left.next].length;
  const uint32_t token = tokens_.find(word.substr(left.begin, length));
  if (token != kNoToken) scratch.candidates.push({scores_[token], place, length});
}

void ScoreMergeEncoder::emit(
    std::string_view symbol,
    bool& after_unknown,
    std::vector<uint32_t>& out) const {
  const uint32_t token = tokens_.find(symbol);
  if (token != kNoToken) {
    out.push_back(token);
    after_unknown = false;
    return;
  }
  for (char c : symbol) {
    const uint32_t byte_token = byte_tokens_[static_cast<uint8_t>(c)];
    if (byte_token != kNoToken) {
      out.push_back(byte_token);
      after_unknown = false;
    } else if (unknown_ == kNoToken) {
      say_once_that_bytes_are_dropped({&c, 1});
    } else if (!after_unknown) {
      out.push_back(unknown_);  // one for a whole run, as SentencePiece does
      after_unknown = true;
    }
  }
}

}  // namespace nightsweep
