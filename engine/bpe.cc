#include "engine/bpe.h"

#include "base/error.h"
#include "engine/normalize.h"
#include "engine/utf8.h"

namespace nightsweep {

namespace {

// Byte-level BPE writes each byte as one printable character: those that are printable stand for
// themselves, the other 68, in rising order, for U+0100 and up (encoder.py of GPT-2).
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr unsigned kFirstShifted = 0x100;
constexpr unsigned kNumShifted = 68;

constexpr std::array<uint8_t, kNumShifted> kShiftedBytes = [] {
  std::array<uint8_t, kNumShifted> bytes = {};
  size_t n = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) bytes[n++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}();

// Code points of one or two bytes are all that the alphabet needs; -1 for any other.
int byte_of_character(std::string_view character) {
  unsigned code_point = static_cast<uint8_t>(character[0]);
  if (character.size() == 2) {
    code_point = (code_point & 0x1FU) << 6U | (static_cast<uint8_t>(character[1]) & 0x3FU);
  } else if (character.size() > 2) {
    return -1;
  }
  if (code_point < 256) return stands_for_itself(code_point) ? static_cast<int>(code_point) : -1;
  if (code_point < kFirstShifted + kNumShifted) return kShiftedBytes[code_point - kFirstShifted];
  return -1;
}

// False when `text` holds anything outside the alphabet; those characters are kept as they are.
bool map_to_bytes(std::string_view text, std::string& out) {
  bool is_mapped = true;
  out.clear();
  while (!text.empty()) {
    const Utf8Unit unit = first_utf8_unit(text);
    const std::string_view character = text.substr(0, unit.n_bytes);
    const int byte = unit.kind == Utf8Kind::character ? byte_of_character(character) : -1;
    if (byte >= 0) {
      out += static_cast<char>(byte);
    } else {
      out += character;
      is_mapped = false;
    }
    text.remove_prefix(unit.n_bytes);
  }
  return is_mapped;
}

}  // namespace

struct BytePairEncoder::Scratch {
  std::vector<std::string_view> pieces;
  MergeTable::Scratch merging;
};

BytePairEncoder::BytePairEncoder(const TokenData& data, const PreTokenizerRule& rule)
    : pre_tokenizer_(rule),
      table_(data.texts.size(), data.merges.size()),
      whole_(data.texts.size()) {
  if (data.merges.empty()) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.merges: expected the merges that a 'gpt2' tokenizer needs, found "
        "none; convert the model again",
        data.source);
  }
  std::string bytes;
  for (size_t id = 0; id < data.texts.size(); ++id) {
    // Control tokens and user-defined ones are cut out before; merging must never make one.
    const bool is_plain =
        data.types[id] == TokenType::normal || data.types[id] == TokenType::unused;
    if (!is_plain || !map_to_bytes(data.texts[id], bytes)) bytes.clear();
    table_.add_token(bytes);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = table_.intern(std::string(1, static_cast<char>(byte)));
  }
  std::string left;
  std::string right;
  for (uint32_t rank = 0; rank < data.merges.size(); ++rank) {
    const MergeLine line = split_merge_line(data.source, rank, data.merges[rank]);
    // A part outside the alphabet can never arise from text.
    if (!map_to_bytes(line.left, left) || !map_to_bytes(line.right, right)) continue;
    table_.add_merge(
        table_.intern(left), table_.intern(right), {rank, table_.intern(left + right)});
  }
}

std::string BytePairEncoder::bytes_of(std::string_view token_text) const {
  std::string bytes;
  map_to_bytes(token_text, bytes);
  return bytes;
}

void BytePairEncoder::encode(std::string_view text, std::vector<uint32_t>& out) const {
  std::string normalized;
  if (pre_tokenizer_.rule().normalizes_nfc && !is_surely_nfc(text)) {
    normalized = normalize_nfc(text);
    text = normalized;
  }
  Scratch scratch;
  pre_tokenizer_.split(text, scratch.pieces);
  for (std::string_view piece : scratch.pieces)
    encode_piece(piece, scratch, out);
}

void BytePairEncoder::encode_piece(
    std::string_view piece,
    Scratch& scratch,
    std::vector<uint32_t>& out) const {
  const Symbol token = table_.find(piece);
  if (token < table_.n_tokens() &&
      (pre_tokenizer_.rule().ignores_merges || is_whole(token, piece, scratch))) {
    out.push_back(token);
    return;
  }
  merge(piece, scratch);
  for (Symbol symbol : scratch.merging.symbols)
    emit(symbol, out);
}

bool BytePairEncoder::is_whole(Symbol token, std::string_view bytes, Scratch& scratch) const {
  Whole whole = whole_[token].load(std::memory_order_relaxed);
  if (whole == Whole::unknown) {
    merge(bytes, scratch);
    const std::vector<Symbol>& symbols = scratch.merging.symbols;
    const bool gives_itself = symbols.size() == 1 && symbols[0] == token;
    whole = gives_itself ? Whole::yes : Whole::no;
    whole_[token].store(whole, std::memory_order_relaxed);
  }
  return whole == Whole::yes;
}

void BytePairEncoder::merge(std::string_view piece, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.merging.symbols;
  symbols.clear();
  for (const char& c : piece) {
    const Symbol symbol = byte_symbols_[static_cast<uint8_t>(c)];
    if (symbol < table_.n_tokens()) {
      symbols.push_back(symbol);
    } else {
      // Gone before the merges, so that its neighbours meet, as in Hugging Face's tokenizers.
      say_once_that_bytes_are_dropped({&c, 1});
    }
  }
  table_.merge(scratch.merging);
}

void BytePairEncoder::emit(Symbol symbol, std::vector<uint32_t>& out) const {
  if (symbol < table_.n_tokens()) {
    out.push_back(symbol);
    return;
  }
  // Made of tokens, byte by byte, but none itself.
  for (char c : table_.text(symbol))
    out.push_back(byte_symbols_[static_cast<uint8_t>(c)]);
}

}  // namespace nightsweep
