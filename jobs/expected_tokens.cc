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

// Of keys and strings, for templates write most of them, and little else.
uint64_t text_bytes(const Json& json) {
  uint64_t n_bytes = 0;
  if (json.is_string()) {
    n_bytes = json.as_string().size();
  } else if (json.is_array()) {
    for (const Json& element : json.as_array())
      n_bytes += text_bytes(element);
  } else if (json.is_object()) {
    for (const auto& [key, member] : json.as_object())
      n_bytes += key.size() + text_bytes(member);
  }
  return n_bytes;
}

uint64_t tokens_of(const Json& json) {
  return text_bytes(json) / kBytesAToken;
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
