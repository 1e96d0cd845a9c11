// Byte-level BPE: pieces of text, then merges of neighbours by rank.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/merge_table.h"
#include "engine/pre_tokenizer.h"
#include "engine/text_encoder.h"
#include "engine/token_data.h"

namespace nightsweep {

class BytePairEncoder : public TextEncoder {
 public:
  // Throws Error(model) for merges that are missing or malformed. Keeps nothing of `data`.
  BytePairEncoder(const TokenData& data, const PreTokenizerRule& rule);

  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string bytes_of(std::string_view token_text) const override;

 private:
  using Symbol = MergeTable::Symbol;
  struct Scratch;

  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& out) const;
  bool is_whole(Symbol token, std::string_view bytes, Scratch& scratch) const;
  // Leaves the symbols of `piece` after all merges in scratch.merging.symbols.
  void merge(std::string_view piece, Scratch& scratch) const;
  void emit(Symbol symbol, std::vector<uint32_t>& out) const;

  PreTokenizer pre_tokenizer_;
  MergeTable table_;  // of bytes
  std::array<Symbol, 256> byte_symbols_ = {};

  // Whether the merges make a token of its own bytes, so that a piece equal to it needs no
  // merging. Found out on first use; every thread finds the same.
  enum class Whole : uint8_t { unknown, yes, no };
  mutable std::vector<std::atomic<Whole>> whole_;
};

}  // namespace nightsweep
