// SentencePiece BPE: merges of neighbours by the score of what they make.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_encoder.h"
#include "engine/text_table.h"
#include "engine/token_data.h"

namespace nightsweep {

class ScoreMergeEncoder : public TextEncoder {
 public:
  // Throws Error(model) for scores that are missing or byte tokens with another text.
  // `adds_space_prefix`: a space goes before each run of ordinary text.
  ScoreMergeEncoder(const TokenData& data, bool adds_space_prefix);

  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string bytes_of(std::string_view token_text) const override;

 private:
  static constexpr uint32_t kNoToken = TextTable::kNone;

  struct Symbol;
  struct Candidate;
  struct Scratch;

  void encode_word(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const;
  void consider(std::string_view word, uint32_t place, Scratch& scratch) const;
  void emit(std::string_view symbol, bool& after_unknown, std::vector<uint32_t>& out) const;

  bool adds_space_prefix_;
  // No token has U+2581 after anything else, so no merge crosses the front of a word and each word
  // can be merged alone, with the same result.
  bool words_are_apart_ = true;
  uint32_t unknown_ = kNoToken;
  std::vector<std::string> texts_;  // tokens_ points into them
  std::vector<float> scores_;
  TextTable tokens_;  // those that merging may make
  std::array<uint32_t, 256> byte_tokens_ = {};
};

}  // namespace nightsweep
