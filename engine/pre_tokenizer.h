// How byte-level BPE cuts a text into pieces before it merges: the rule that `tokenizer.ggml.pre`
// names, with what else goes with that family.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nightsweep {

struct PreTokenizerRule {
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre
  // Applied in turn, each to the pieces that the one before has left.
  std::vector<std::string_view> patterns;
  bool normalizes_nfc = false;
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignores_merges = false;
  bool adds_bos = false;  // unless the file says otherwise
};

// Null when the name is not known.
const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name);
// "command-r, gpt-2, …": for messages.
std::string known_pre_tokenizer_names();

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
};

}  // namespace nightsweep
