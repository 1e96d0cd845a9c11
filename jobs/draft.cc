#include "jobs/draft.h"

#include <string>

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr size_t kMaxAnswers = 4096;  // prompts times choices of one line
constexpr int64_t kDefaultCompletionTokens = 16;

class Review {
 public:
  Review(const std::vector<BodyField>& fields, Draft& draft)
      : fields_(fields), draft_(draft), parameters_(draft.job.parameters) {}

  void run() {
    settle_max_tokens();
    if (draft_.seed) parameters_.seed = *draft_.seed;
    settle_template_switches();
    check_min_tokens();
    check_choices();
    check_tools();
    check_template_variables();
    if (parameters_.top_logprobs > 0 && !parameters_.logprobs) {
      refuse("top_logprobs", "logprobs to be true beside top_logprobs, found it false or missing");
    }
  }

 private:
  bool is_chat() const { return draft_.job.endpoint == Endpoint::chat; }

  void settle_max_tokens() {
    const auto& newer = draft_.max_completion_tokens;
    const auto& older = draft_.max_tokens;
    if (newer && older && *newer != *older) {
      refuse(
          "max_tokens", format(
                            "the same value as max_completion_tokens, {}, or only one of both, "
                            "found the number {}",
                            *newer, *older));
    }
    parameters_.max_tokens = newer ? newer : older;
    if (is_chat()) return;
    if (!parameters_.max_tokens) parameters_.max_tokens = kDefaultCompletionTokens;
    if (*parameters_.max_tokens == 0 && !parameters_.echo) {
      refuse("max_tokens", "at least 1 without echo, found the number 0");
    }
  }

  void settle_template_switches() {
    Job& job = draft_.job;
    job.add_special_tokens = draft_.add_special_tokens.value_or(!is_chat());
    if (!job.continue_final_message) {
      job.add_generation_prompt = draft_.add_generation_prompt.value_or(true);
      return;
    }
    if (draft_.add_generation_prompt.value_or(false)) {
      refuse(
          "continue_final_message",
          "false beside add_generation_prompt true, found both true (a message is continued, or a "
          "new one begun)");
    }
    job.add_generation_prompt = false;
    const Json* content = job.messages.as_array().back().find("content");
    if (content == nullptr || content->is_null()) {
      refuse("continue_final_message", "a last message with content, found none");
    }
  }

  void check_min_tokens() {
    if (parameters_.max_tokens && parameters_.min_tokens > *parameters_.max_tokens) {
      refuse(
          "min_tokens", format(
                            "at most max_tokens, {}, found the number {}", *parameters_.max_tokens,
                            parameters_.min_tokens));
    }
  }

  void check_choices() {
    if (draft_.best_of && *draft_.best_of != parameters_.n) {
      refuse(
          "best_of",
          format("the same as n, {}, found the number {}", parameters_.n, *draft_.best_of),
          code::kUnsupportedValue);
    }
    size_t answers = draft_.job.prompts.size() * static_cast<size_t>(parameters_.n);
    if (answers > kMaxAnswers) {
      refuse(
          "prompt", format(
                        "at most {} answers of one line, found {} prompts with {} choices each "
                        "(split the line)",
                        kMaxAnswers, draft_.job.prompts.size(), parameters_.n));
    }
  }

  // A field and a variable of the same name would make one of them void.
  void check_template_variables() {
    const Job& job = draft_.job;
    const std::pair<const char*, bool> fields[] = {
        {"documents", !job.documents.is_null()},
        {"reasoning_effort", job.reasoning_effort.has_value()},
        {"verbosity", job.verbosity.has_value()}};
    for (auto [key, is_given] : fields) {
      if (!is_given || job.chat_template_kwargs.find(key) == nullptr) continue;
      refuse(key, "it here or in chat_template_kwargs, found both");
    }
  }

  // Tools stand in the prompt; an answer that calls one would be given as plain text.
  void check_tools() {
    if (draft_.job.tools.is_null() || draft_.tool_choice == "none") return;
    const bool is_given = !draft_.tool_choice.empty();
    const std::string expected = format(
        "\"none\" beside tools, as answers are not parsed for tool calls, found {}",
        is_given ? "\"" + draft_.tool_choice + "\"" : "nothing");
    if (draft_.lenient) {
      draft_.job.ignored.emplace_back("tool_choice");
    } else {
      refuse("tool_choice", expected, code::kUnsupportedValue);
    }
  }

  [[noreturn]] void
  refuse(std::string_view key, std::string_view expected, const char* code = code::kInvalidValue) {
    std::string path(key);
    for (const BodyField& given : fields_) {
      if (given.key == key) path = given.field.path();
    }
    throw Refusal{path, format("expected {}", expected), code};
  }

  const std::vector<BodyField>& fields_;
  Draft& draft_;
  Parameters& parameters_;
};

}  // namespace

void settle(Draft& draft, const std::vector<BodyField>& fields) {
  Review(fields, draft).run();
}

}  // namespace nightsweep
