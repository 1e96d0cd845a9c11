#include "engine/bpe.h"

#include <bit>
#include <queue>

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

constexpr uint64_t pair_of(uint32_t left, uint32_t right) {
  return static_cast<uint64_t>(left) << 32U | right;
}

// Up to here scanning all pairs for the best is quicker than keeping a heap.
constexpr size_t kLongPiece = 64;

}  // namespace

struct BytePairEncoder::Scratch {
  std::vector<std::string_view> pieces;
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;  // of symbols i and i + 1
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
};

BytePairEncoder::BytePairEncoder(const TokenData& data, const PreTokenizerRule& rule)
    : pre_tokenizer_(rule),
      n_tokens_(data.texts.size()),
      symbols_(data.texts.size()),
      whole_(data.texts.size()) {
  if (data.merges.empty()) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.merges: expected the merges that a 'gpt2' tokenizer needs, found "
        "none; convert the model again",
        data.source);
  }
  for (uint32_t id = 0; id < n_tokens_; ++id) {
    std::string& bytes = symbol_bytes_.emplace_back();
    // Control tokens and user-defined ones are cut out before; merging must never make one.
    const bool is_plain =
        data.types[id] == TokenType::normal || data.types[id] == TokenType::unused;
    if (is_plain && map_to_bytes(data.texts[id], bytes) && !bytes.empty()) {
      symbols_.insert(bytes, id);
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = intern(std::string(1, static_cast<char>(byte)));
  }

  const size_t n_slots = std::bit_ceil(data.merges.size() * 2);
  merges_.resize(n_slots);
  merges_shift_ = 64 - std::countr_zero(n_slots);
  std::string left;
  std::string right;
  for (uint32_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view line = data.merges[rank];
    const size_t space = line.empty() ? std::string_view::npos : line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size()) {
      fail(
          ErrorKind::model,
          "{}: tokenizer.ggml.merges: merge {}: expected two parts with a space between, found "
          "'{}'",
          data.source, rank, line);
    }
    // A part outside the alphabet can never arise from text.
    const bool can_occur =
        map_to_bytes(line.substr(0, space), left) && map_to_bytes(line.substr(space + 1), right);
    if (!can_occur) continue;
    const Symbol left_symbol = intern(left);
    const Symbol right_symbol = intern(right);
    add_merge(left_symbol, right_symbol, {rank, intern(left + right)});
  }
}

std::string BytePairEncoder::bytes_of(std::string_view token_text) const {
  std::string bytes;
  map_to_bytes(token_text, bytes);
  return bytes;
}

BytePairEncoder::Symbol BytePairEncoder::intern(std::string_view bytes) {
  const Symbol known = symbols_.find(bytes);
  if (known != kNoSymbol) return known;
  const auto symbol = static_cast<Symbol>(symbol_bytes_.size());
  symbols_.insert(symbol_bytes_.emplace_back(bytes), symbol);
  return symbol;
}

void BytePairEncoder::add_merge(Symbol left, Symbol right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  size_t place = pair * 0x9E3779B97F4A7C15ULL >> merges_shift_;
  while (merges_[place].pair != UINT64_MAX) {
    if (merges_[place].pair == pair) return;  // the better rank came first
    place = (place + 1) & (merges_.size() - 1);
  }
  merges_[place] = {pair, merge};
}

BytePairEncoder::Merge BytePairEncoder::find_merge(Symbol left, Symbol right) const {
  const uint64_t pair = pair_of(left, right);
  size_t place = pair * 0x9E3779B97F4A7C15ULL >> merges_shift_;
  while (merges_[place].pair != UINT64_MAX) {
    if (merges_[place].pair == pair) return merges_[place].merge;
    place = (place + 1) & (merges_.size() - 1);
  }
  return {};
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
  const Symbol token = symbols_.find(piece);
  if (token < n_tokens_ &&
      (pre_tokenizer_.rule().ignores_merges || is_whole(token, piece, scratch))) {
    out.push_back(token);
    return;
  }
  merge(piece, scratch);
  for (Symbol symbol : scratch.symbols)
    emit(symbol, out);
}

bool BytePairEncoder::is_whole(Symbol token, std::string_view bytes, Scratch& scratch) const {
  Whole whole = whole_[token].load(std::memory_order_relaxed);
  if (whole == Whole::unknown) {
    merge(bytes, scratch);
    const bool gives_itself = scratch.symbols.size() == 1 && scratch.symbols[0] == token;
    whole = gives_itself ? Whole::yes : Whole::no;
    whole_[token].store(whole, std::memory_order_relaxed);
  }
  return whole == Whole::yes;
}

void BytePairEncoder::merge(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  for (const char& c : piece) {
    const Symbol symbol = byte_symbols_[static_cast<uint8_t>(c)];
    if (symbol < n_tokens_) {
      scratch.symbols.push_back(symbol);
    } else {
      // Gone before the merges, so that its neighbours meet, as in Hugging Face's tokenizers.
      say_once_that_bytes_are_dropped({&c, 1});
    }
  }
  if (piece.size() <= kLongPiece) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

void BytePairEncoder::merge_short(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Merge>& merges = scratch.merges;
  merges.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    merges.push_back(find_merge(symbols[i], symbols[i + 1]));
  }
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].merged == kNoSymbol) break;
    symbols[best] = merges[best].merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<ptrdiff_t>(best));
    if (best > 0) merges[best - 1] = find_merge(symbols[best - 1], symbols[best]);
    if (best < merges.size()) merges[best] = find_merge(symbols[best], symbols[best + 1]);
  }
}

void BytePairEncoder::merge_long(Scratch& scratch) const {
  struct Candidate {
    uint32_t rank;
    uint32_t place;  // of the left one
    Symbol left;
    Symbol right;
    // The queue gives the largest: that is the lowest rank, leftmost.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  std::vector<Symbol>& symbols = scratch.symbols;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t>& next = scratch.next;
  std::vector<uint32_t>& previous = scratch.previous;
  next.resize(n);
  previous.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: never read
  }

  std::priority_queue<Candidate> candidates;
  auto consider = [&](uint32_t place) {
    const Symbol left = symbols[place];
    const Symbol right = symbols[next[place]];
    const Merge merge = find_merge(left, right);
    if (merge.merged != kNoSymbol) candidates.push({merge.rank, place, left, right});
  };
  for (uint32_t i = 0; i + 1 < n; ++i)
    consider(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const uint32_t place = best.place;
    // Stale when a merge has changed or taken either side since.
    if (symbols[place] != best.left || next[place] >= n || symbols[next[place]] != best.right) {
      continue;
    }
    const uint32_t taken = next[place];
    symbols[place] = find_merge(best.left, best.right).merged;
    symbols[taken] = kNoSymbol;
    next[place] = next[taken];
    if (next[place] < n) previous[next[place]] = place;
    if (place > 0) consider(previous[place]);
    if (next[place] < n) consider(place);
  }
  std::erase(symbols, kNoSymbol);
}

void BytePairEncoder::emit(Symbol symbol, std::vector<uint32_t>& out) const {
  if (symbol < n_tokens_) {
    out.push_back(symbol);
    return;
  }
  // Made of tokens, byte by byte, but none itself.
  for (char c : symbol_bytes_[symbol])
    out.push_back(byte_symbols_[static_cast<uint8_t>(c)]);
}

}  // namespace nightsweep
