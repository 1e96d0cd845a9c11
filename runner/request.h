// Between jobs and tokens: a Job becomes sequences of the engine, their results become its Answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat_template.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "jobs/job.h"

namespace nightsweep {

using PromptTokens = std::vector<TokenIds>;  // one list a prompt of the job

// Where a job's answers stand: choice `index` belongs to prompt index / n.
inline size_t n_choices(const Job& job, const PromptTokens& prompts) {
  return prompts.size() * static_cast<size_t>(job.parameters.n);
}

// Turns jobs into sequences for one model. Thread-safe; what it refers to must outlive it.
class RequestMaker {
 public:
  // chat_template: null where the model has none, or none that is understood; `no_template` then
  // says why, as a clause.
  RequestMaker(
      const Tokenizer& tokenizer,
      const ChatTemplate* chat_template,
      std::string no_template,
      uint32_t context_tokens);

  // Tokens of every prompt, or why the job cannot be done by this model: no chat template, a
  // template error, a prompt that is empty or too long, ids beyond the vocabulary.
  // submitted_unix_s: the clock that a template sees. It is the time of the submission, so that a
  // job resumed on another day has the same prompt.
  std::variant<PromptTokens, ApiError> prompts(const Job& job, int64_t submitted_unix_s) const;

  // The sequence of choice `index`; the handle is left to the caller. REQUIRES: `prompts` are
  // those of the job.
  SequenceRequest
  sequence(const Job& job, const PromptTokens& prompts, size_t index, TokenIds resumed) const;

  // The visible part of an answer. `results`: one a choice, in order.
  std::vector<Choice> choices(
      const Job& job,
      const PromptTokens& prompts,
      std::span<const SequenceResult> results) const;

 private:
  std::variant<TokenIds, ApiError> chat_prompt(const Job& job, int64_t submitted_unix_s) const;
  std::variant<TokenIds, ApiError> text_prompt(const Job& job, const Prompt& prompt) const;
  std::optional<ApiError> check_template_fields(const Job& job) const;
  std::vector<std::vector<uint32_t>> bad_words_of(const std::vector<std::string>& words) const;
  // Keeps the last `n_wanted` ids, or with -1 as many as the context has room for.
  void truncate(TokenIds& ids, int64_t n_wanted) const;
  AnswerLogprob logprob(const AnswerToken& token) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  std::string no_template_;
  uint32_t context_tokens_;
};

// Cuts a rendered chat behind the text of its last message, so that the answer goes on from there.
// False: that text does not stand in the rendering.
bool cut_after_message(std::vector<TextSpan>& spans, const std::string& message);

}  // namespace nightsweep
