#include <algorithm>

#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

constexpr uint64_t kBytesAToken = 4;
// Of an answer that nothing but the context bounds.
constexpr uint64_t kUsualAnswer = 256;

uint64_t tokens_of(const Prompt& prompt) {
  const auto* ids = std::get_if<TokenIds>(&prompt);
  return ids != nullptr ? ids->size() : std::get<std::string>(prompt).size() / kBytesAToken;
}

uint64_t tokens_of(const Json& json) {
  return json.is_null() ? 0 : json.dump().size() / kBytesAToken;
}

}  // namespace

uint64_t expected_tokens(const Job& job) {
  uint64_t prompt = tokens_of(job.messages) + tokens_of(job.tools) + tokens_of(job.documents);
  for (const Prompt& one : job.prompts)
    prompt = std::max(prompt, tokens_of(one));
  const int64_t kept = job.truncate_prompt_tokens.value_or(-1);
  if (kept > 0) prompt = std::min(prompt, static_cast<uint64_t>(kept));
  const std::optional<int64_t>& most = job.parameters.max_tokens;
  return prompt + (most ? static_cast<uint64_t>(*most) : kUsualAnswer);
}

}  // namespace nightsweep
