#include "engine/answer.h"

#include <algorithm>
#include <utility>

namespace nightsweep {

AnswerText::AnswerText(const Tokenizer& tokenizer, StopRules rules)
    : tokenizer_(tokenizer), rules_(std::move(rules)), stop_ids_(rules_.token_ids) {
  if (!rules_.ignore_eos) {
    const auto& ends = tokenizer.end_of_generation();
    stop_ids_.insert(stop_ids_.end(), ends.begin(), ends.end());
  }
}

bool AnswerText::is_stop_token(uint32_t token) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

const std::vector<uint32_t>& AnswerText::banned() const {
  static const std::vector<uint32_t> kNone;
  return tokens_.size() < rules_.min_tokens ? stop_ids_ : kNone;
}

FinishReason AnswerText::push(uint32_t token) {
  tokens_.push_back(token);
  bool may_stop = tokens_.size() > rules_.min_tokens;
  if (may_stop && is_stop_token(token)) {
    ended_by_token_ = true;
    return end(FinishReason::stop);
  }
  if (!rules_.skip_special_tokens || !tokenizer_.is_control(token)) {
    size_t searched = text_.size();
    text_ += decoder_.push(tokenizer_.token_bytes(token));
    if (may_stop && find_stop_string(searched)) return end(FinishReason::stop);
  }
  if (tokens_.size() >= rules_.max_tokens) return end(FinishReason::length);
  return FinishReason::none;
}

// The earliest occurrence that ends in the text behind `searched`.
bool AnswerText::find_stop_string(size_t searched) {
  size_t best = std::string::npos;
  size_t best_length = 0;
  for (const std::string& stop : rules_.strings) {
    size_t from = searched >= stop.size() ? searched - stop.size() + 1 : 0;
    size_t at = text_.find(stop, from);
    if (at < best) {
      best = at;
      best_length = stop.size();
    }
  }
  if (best == std::string::npos) return false;
  text_.resize(rules_.include_stop_in_output ? best + best_length : best);
  cut_ = true;
  return true;
}

FinishReason AnswerText::end(FinishReason reason) {
  if (!cut_) text_ += decoder_.finish();
  reason_ = reason;
  return reason;
}

std::string AnswerText::take_text() {
  return std::move(text_);
}

}  // namespace nightsweep
