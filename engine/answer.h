// AnswerText: the text of one answer as its tokens come, and when it ends.
//
// Text is complete characters only. A stop string is found across token borders; nothing that may
// still become one is treated as final. The end-of-generation token leaves no text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tokenizer.h"

namespace nightsweep {

enum class FinishReason { none, stop, length, error };

struct StopRules {
  uint64_t max_tokens = 0;  // of the answer
  uint64_t min_tokens = 0;  // before it neither tokens nor strings stop
  bool ignore_eos = false;
  std::vector<std::string> strings;
  bool include_stop_in_output = false;
  std::vector<uint32_t> token_ids;
  bool skip_special_tokens = true;
};

class AnswerText {
 public:
  // `tokenizer` must outlive it.
  AnswerText(const Tokenizer& tokenizer, StopRules rules);

  // REQUIRES: not finished. What the token means for the answer: none to go on.
  FinishReason push(uint32_t token);

  FinishReason reason() const { return reason_; }
  const std::vector<uint32_t>& tokens() const { return tokens_; }  // all that were pushed
  // Tokens of the answer proper: without the one that ended it by its id.
  size_t n_kept_tokens() const { return tokens_.size() - (ended_by_token_ ? 1 : 0); }
  // REQUIRES: finished.
  std::string take_text();
  // Ids that may not be drawn next: those that would end the answer before min_tokens.
  const std::vector<uint32_t>& banned() const;

 private:
  bool is_stop_token(uint32_t token) const;
  bool find_stop_string(size_t searched);
  FinishReason end(FinishReason reason);

  const Tokenizer& tokenizer_;
  StopRules rules_;
  StreamDecoder decoder_;
  std::string text_;
  std::vector<uint32_t> tokens_;
  std::vector<uint32_t> stop_ids_;  // all ids that end an answer
  FinishReason reason_ = FinishReason::none;
  bool ended_by_token_ = false;
  bool cut_ = false;
};

}  // namespace nightsweep
