// Byte-level BPE: pieces of text, then merges of neighbours by rank.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pre_tokenizer.h"
#include "engine/text_encoder.h"
#include "engine/text_table.h"
#include "engine/token_data.h"

namespace nightsweep {

class BytePairEncoder : public TextEncoder {
 public:
  // Throws Error(model) for merges that are missing or malformed. Keeps nothing of `data`.
  BytePairEncoder(const TokenData& data, const PreTokenizerRule& rule);

  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string bytes_of(std::string_view token_text) const override;

 private:
  // A byte string that a merge can make. Ids below n_tokens_ are tokens; the others occur in the
  // merges alone, or are single bytes that the vocabulary lacks.
  using Symbol = uint32_t;
  static constexpr Symbol kNoSymbol = TextTable::kNone;

  struct Merge {
    uint32_t rank = UINT32_MAX;
    Symbol merged = kNoSymbol;
  };
  struct Scratch;

  Symbol intern(std::string_view bytes);
  void add_merge(Symbol left, Symbol right, Merge merge);
  Merge find_merge(Symbol left, Symbol right) const;

  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& out) const;
  bool is_whole(Symbol token, std::string_view bytes, Scratch& scratch) const;
  // Leaves the symbols of `piece` after all merges in scratch.symbols.
  void merge(std::string_view piece, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  void emit(Symbol symbol, std::vector<uint32_t>& out) const;

  PreTokenizer pre_tokenizer_;
  size_t n_tokens_ = 0;
  std::deque<std::string> symbol_bytes_;  // a deque: symbols_ points into its strings
  TextTable symbols_;
  std::array<Symbol, 256> byte_symbols_ = {};

  // Open addressing over pairs of symbols.
  struct MergeSlot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  std::vector<MergeSlot> merges_;
  int merges_shift_ = 0;

  // Whether the merges make a token of its own bytes, so that a piece equal to it needs no
  // merging. Found out on first use; every thread finds the same.
  enum class Whole : uint8_t { unknown, yes, no };
  mutable std::vector<std::atomic<Whole>> whole_;
};

}  // namespace nightsweep
