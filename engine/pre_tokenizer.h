// Cuts a text into pieces, by one of the rules of pre_tokenizer_rules.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pre_tokenizer_rules.h"

namespace nightsweep {

class PreTokenizer {
 public:
  // `rule` must outlive this; those of find_pre_tokenizer_rule() live for ever.
  explicit PreTokenizer(const PreTokenizerRule& rule);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  const PreTokenizerRule& rule() const { return rule_; }

  // Replaces `pieces` by the pieces of `text`, in order; joined they are `text`. Bytes that are not
  // UTF-8 form pieces of their own. Thread-safe. Time is bounded by a multiple of the text's
  // length: Error(input) if a pattern would go beyond.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Pattern;

  const PreTokenizerRule& rule_;
  std::vector<std::unique_ptr<Pattern>> patterns_;
  std::vector<std::unique_ptr<Pattern>> byte_patterns_;
};

}  // namespace nightsweep
