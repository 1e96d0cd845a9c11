// BPE over characters, as Gemma 4 has it: spaces are written U+2581, merges run by rank over whole
// runs of text, and a character without a token falls back to byte tokens `<0xNN>`.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/merge_table.h"
#include "engine/text_encoder.h"
#include "engine/token_data.h"

namespace nightsweep {

class CharacterPairEncoder : public TextEncoder {
 public:
  // Throws Error(model) for merges that are missing or malformed, or byte tokens of another text.
  // Keeps nothing of `data`.
  explicit CharacterPairEncoder(const TokenData& data);

  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string bytes_of(std::string_view token_text) const override;

 private:
  using Symbol = MergeTable::Symbol;

  // Bytes of the piece that `text` begins with: up to a place that no merge goes across.
  size_t piece_end(std::string_view text) const;
  void encode_piece(
      std::string_view piece,
      MergeTable::Scratch& scratch,
      std::vector<uint32_t>& out) const;
  void add_symbols(std::string_view character, std::vector<Symbol>& symbols) const;

  MergeTable table_;
  std::array<Symbol, 256> byte_tokens_ = {};
  bool has_byte_tokens_ = true;  // all 256
  Symbol unknown_ = MergeTable::kNoSymbol;
  // No merge makes a text with U+2581 behind anything else, so that none crosses the front of a
  // word and each word can be merged alone, with the same result. The same for line feeds next to
  // anything else.
  bool words_are_apart_ = true;
  bool lines_are_apart_ = true;
};

}  // namespace nightsweep
