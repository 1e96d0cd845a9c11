#include "jobs/parameters.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/format.h"
#include "jobs/draft.h"
#include "jobs/messages.h"
#include "jobs/parameter_readers.h"

namespace nightsweep {

namespace {

constexpr unsigned kChat = 1;
constexpr unsigned kCompletions = 2;
constexpr unsigned kBoth = kChat | kCompletions;

constexpr double kMaxDouble = std::numeric_limits<double>::max();
constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMinInteger = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxChoices = 128;

using Read = void (*)(const Field&, Draft&);
using IsNeutral = bool (*)(const Json&);

enum class Treatment { honoured, inert, refused };

struct Parameter {
  std::string_view key;
  unsigned endpoints = kBoth;
  Treatment treatment = Treatment::honoured;
  Read read = nullptr;             // honoured
  IsNeutral is_neutral = nullptr;  // refused, but for these values, which mean the same as nothing
  const char* code = "";           // refused
  const char* expected = "";       // refused
  const char* remedy = "";         // refused
};

constexpr Parameter honoured(std::string_view key, unsigned endpoints, Read read) {
  Parameter parameter;
  parameter.key = key;
  parameter.endpoints = endpoints;
  parameter.read = read;
  return parameter;
}

// Without effect on the tokens.
constexpr Parameter inert(std::string_view key, unsigned endpoints = kBoth) {
  Parameter parameter;
  parameter.key = key;
  parameter.endpoints = endpoints;
  parameter.treatment = Treatment::inert;
  return parameter;
}

constexpr Parameter
refused(std::string_view key, const char* remedy, IsNeutral is_neutral = nullptr) {
  Parameter parameter;
  parameter.key = key;
  parameter.treatment = Treatment::refused;
  parameter.is_neutral = is_neutral;
  parameter.code = code::kUnsupportedParameter;
  parameter.expected = "it to be left out";
  parameter.remedy = remedy;
  return parameter;
}

// Supported for some values only, and those need no work.
constexpr Parameter
limited(std::string_view key, const char* expected, IsNeutral is_neutral, const char* remedy) {
  Parameter parameter = refused(key, remedy, is_neutral);
  parameter.code = code::kUnsupportedValue;
  parameter.expected = expected;
  return parameter;
}

bool is_false(const Json& value) {
  return value.is_bool() && !value.as_bool();
}
bool is_true(const Json& value) {
  return value.is_bool() && value.as_bool();
}
bool is_zero(const Json& value) {
  return value.is_number() && value.as_double() == 0;
}
bool is_one(const Json& value) {
  return value.is_number() && value.as_double() == 1;
}
bool is_empty_list(const Json& value) {
  return value.is_array() && value.as_array().empty();
}
bool is_empty_object(const Json& value) {
  return value.is_object() && value.as_object().empty();
}
bool is_empty_string(const Json& value) {
  return value.is_string() && value.as_string().empty();
}
bool is_auto_or_none(const Json& value) {
  return value.is_string() && (value.as_string() == "auto" || value.as_string() == "none");
}
bool is_text_list(const Json& value) {
  return value == Json(Json::Array{"text"});
}
bool is_text_format(const Json& value) {
  return value == Json(Json::Object{{"type", "text"}});
}

// The readers of plain rows: the member that takes the value, and its range.
template <auto kMember>
void read_boolean(const Field& field, Draft& draft) {
  draft.job.parameters.*kMember = field.boolean();
}
template <auto kMember, int64_t kMin, int64_t kMax>
void read_integer(const Field& field, Draft& draft) {
  draft.job.parameters.*kMember = field.integer(kMin, kMax);
}
template <auto kMember, int kMin, int kMax>
void read_number(const Field& field, Draft& draft) {
  draft.job.parameters.*kMember = field.number(kMin, kMax);
}
template <auto kMember>
void read_switch(const Field& field, Draft& draft) {
  draft.*kMember = field.boolean();
}
template <auto kMember, int64_t kMin, int64_t kMax>
void read_later(const Field& field, Draft& draft) {
  draft.*kMember = field.integer(kMin, kMax);
}

void read_completion_logprobs(const Field& field, Draft& draft) {
  draft.job.parameters.top_logprobs = field.integer(0, 5);
  draft.job.parameters.logprobs = true;
}

void read_top_k(const Field& field, Draft& draft) {
  draft.job.parameters.top_k = std::max<int64_t>(0, field.integer(-1, kMaxInteger));
}

constexpr const char* kTemplateRemedy =
    "pass it through chat_template_kwargs where the model's template knows it";
constexpr const char* kOffline = "cannot be done offline";
constexpr const char* kNotYet = "not supported";
constexpr const char* kConstrained = "answers cannot be constrained";
constexpr const char* kToolsRemedy = "tool calls are not supported";

constexpr Parameter kParameters[] = {
    honoured("model", kBoth, [](const Field& f, Draft& d) { d.job.model = f.string(); }),
    honoured(
        "messages",
        kChat,
        [](const Field& f, Draft& d) {
          d.job.messages = read_messages(f, d.lenient, d.job.ignored);
        }),
    honoured(
        "prompt",
        kCompletions,
        [](const Field& f, Draft& d) { d.job.prompts = read_prompt(f); }),
    honoured(
        "max_completion_tokens",
        kChat,
        read_later<&Draft::max_completion_tokens, 1, kMaxTokens>),
    honoured("max_tokens", kChat, read_later<&Draft::max_tokens, 1, kMaxTokens>),
    honoured("max_tokens", kCompletions, read_later<&Draft::max_tokens, 0, kMaxTokens>),
    honoured("temperature", kBoth, read_number<&Parameters::temperature, 0, 2>),
    honoured(
        "top_p",
        kBoth,
        [](const Field& f, Draft& d) { d.job.parameters.top_p = f.number_above(0, 1); }),
    honoured("top_k", kBoth, read_top_k),
    honoured("min_p", kBoth, read_number<&Parameters::min_p, 0, 1>),
    honoured(
        "repetition_penalty",
        kBoth,
        [](const Field& f, Draft& d) {
          d.job.parameters.repetition_penalty = f.number_above(0, kMaxDouble);
        }),
    honoured("frequency_penalty", kBoth, read_number<&Parameters::frequency_penalty, -2, 2>),
    honoured("presence_penalty", kBoth, read_number<&Parameters::presence_penalty, -2, 2>),
    honoured("logit_bias", kBoth, read_logit_bias),
    honoured("min_tokens", kBoth, read_integer<&Parameters::min_tokens, 0, kMaxTokens>),
    honoured("stop", kBoth, read_stop),
    honoured("stop_token_ids", kBoth, read_stop_token_ids),
    honoured("ignore_eos", kBoth, read_boolean<&Parameters::ignore_eos>),
    honoured(
        "include_stop_str_in_output",
        kBoth,
        read_boolean<&Parameters::include_stop_str_in_output>),
    honoured("skip_special_tokens", kBoth, read_boolean<&Parameters::skip_special_tokens>),
    honoured("seed", kBoth, read_later<&Draft::seed, kMinInteger, kMaxInteger>),
    honoured("n", kBoth, read_integer<&Parameters::n, 1, kMaxChoices>),
    honoured("best_of", kCompletions, read_later<&Draft::best_of, 0, kMaxChoices>),
    honoured("logprobs", kChat, read_boolean<&Parameters::logprobs>),
    honoured("logprobs", kCompletions, read_completion_logprobs),
    honoured("top_logprobs", kChat, read_integer<&Parameters::top_logprobs, 0, 20>),
    honoured("echo", kCompletions, read_boolean<&Parameters::echo>),
    honoured("add_generation_prompt", kChat, read_switch<&Draft::add_generation_prompt>),
    honoured(
        "continue_final_message",
        kChat,
        [](const Field& f, Draft& d) { d.job.continue_final_message = f.boolean(); }),
    honoured("add_special_tokens", kBoth, read_switch<&Draft::add_special_tokens>),
    honoured("chat_template_kwargs", kChat, read_template_kwargs),
    honoured(
        "typical_p",
        kBoth,
        [](const Field& f, Draft& d) { d.job.parameters.typical_p = f.number_above(0, 1); }),
    honoured("allowed_token_ids", kBoth, read_allowed_token_ids),
    honoured("bad_words", kBoth, read_bad_words),
    honoured("return_token_ids", kBoth, read_boolean<&Parameters::return_token_ids>),
    honoured("truncate_prompt_tokens", kBoth, read_truncation),
    honoured("tools", kChat, read_tools),
    honoured("tool_choice", kChat, read_tool_choice),
    honoured("documents", kChat, read_documents),
    honoured(
        "reasoning_effort",
        kChat,
        [](const Field& f, Draft& d) { d.job.reasoning_effort = f.string(); }),
    honoured("verbosity", kChat, [](const Field& f, Draft& d) { d.job.verbosity = f.string(); }),
    honoured(
        "separate_reasoning",
        kChat,
        [](const Field& f, Draft& d) { d.job.separate_reasoning = f.boolean(); }),

    inert("user"),
    inert("safety_identifier"),
    inert("prompt_cache_key"),
    inert("prompt_cache_retention"),
    inert("prompt_cache_options"),
    inert("store"),
    inert("service_tier"),
    inert("metadata"),
    inert("cache_salt"),
    inert("prediction"),
    inert("request_id"),
    inert("parallel_tool_calls"),  // without tools it has nothing to act on

    limited("stream", "false", is_false, "the answers of a batch are never streamed"),
    refused("stream_options", "the answers of a batch are never streamed"),
    limited("response_format", "{\"type\":\"text\"}", is_text_format, kConstrained),
    refused("structured_outputs", kConstrained),
    refused("guided_json", kConstrained),
    refused("guided_regex", kConstrained),
    refused("guided_choice", kConstrained),
    refused("guided_grammar", kConstrained),
    refused("guided_decoding_backend", kConstrained),
    refused("guided_whitespace_pattern", kConstrained),
    refused("structural_tag", kConstrained),
    refused("json_schema", kConstrained),
    refused("grammar", kConstrained),
    refused("regex", kConstrained),
    refused("ebnf", kConstrained),
    refused("functions", kToolsRemedy, is_empty_list),
    refused("function_call", kToolsRemedy, is_auto_or_none),
    refused("thinking_token_budget", kTemplateRemedy),
    refused("enable_thinking", kTemplateRemedy),
    refused("chat_template", "chats go through the template in the model file"),
    limited("modalities", "[\"text\"]", is_text_list, "answers are text"),
    refused("audio", kOffline),
    refused("web_search_options", kOffline),
    refused("moderation", kOffline),
    refused("suffix", "fill-in-the-middle is not supported", is_empty_string),
    limited("use_beam_search", "false", is_false, "beam search is not supported"),
    limited("length_penalty", "1", is_one, "beam search is not supported"),
    limited("early_stopping", "false", is_false, "beam search is not supported"),
    limited("spaces_between_special_tokens", "true", is_true, kNotYet),
    limited("priority", "0", is_zero, kNotYet),
    refused("prompt_logprobs", "use /v1/completions with echo and logprobs"),
    limited("return_tokens_as_token_ids", "false", is_false, kNotYet),
    refused("prompt_embeds", kNotYet),
    refused("logits_processors", kNotYet, is_empty_list),
    refused("mm_processor_kwargs", kNotYet, is_empty_object),
    refused("kv_transfer_params", kNotYet),
    refused("vllm_xargs", kNotYet, is_empty_object),
    refused("random_seed", "use seed"),
    limited("safe_prompt", "false", is_false, "put it in a system message"),
};

unsigned bit_of(Endpoint endpoint) {
  return endpoint == Endpoint::chat ? kChat : kCompletions;
}

using Index = std::unordered_map<std::string_view, const Parameter*>;

Index build_index(unsigned endpoint) {
  Index index;
  for (const Parameter& parameter : kParameters) {
    if ((parameter.endpoints & endpoint) != 0) index.emplace(parameter.key, &parameter);
  }
  return index;
}

const Index& index_of(Endpoint endpoint) {
  static const Index kChatIndex = build_index(kChat);
  static const Index kCompletionsIndex = build_index(kCompletions);
  return endpoint == Endpoint::chat ? kChatIndex : kCompletionsIndex;
}

// Levenshtein.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string suggestion(std::string_view key, Endpoint endpoint) {
  constexpr size_t kClose = 2;
  constexpr size_t kLongestKey = 40;
  if (key.size() > kLongestKey) return "";
  const Parameter* closest = nullptr;
  size_t least = kClose + 1;
  for (const Parameter& parameter : kParameters) {
    if (parameter.treatment != Treatment::honoured) continue;
    if ((parameter.endpoints & bit_of(endpoint)) == 0) continue;
    size_t distance = edit_distance(key, parameter.key);
    if (distance < least) {
      least = distance;
      closest = &parameter;
    }
  }
  return closest == nullptr ? "" : format("; did you mean {}?", closest->key);
}

Refusal refusal_of_absent(const BodyField& given, Endpoint endpoint) {
  Endpoint other = endpoint == Endpoint::chat ? Endpoint::completions : Endpoint::chat;
  if (index_of(other).count(given.key) != 0) {
    const char* remedy = given.key == "max_completion_tokens" ? " (use max_tokens)" : "";
    return {
        given.field.path(),
        format(
            "expected a parameter of {}, found one of {}{}", endpoint_url(endpoint),
            endpoint_url(other), remedy),
        code::kUnsupportedParameter};
  }
  return {
      given.field.path(),
      format(
          "expected a parameter of {}, found \"{}\", which is none{}", endpoint_url(endpoint),
          key_text(given.key), suggestion(given.key, endpoint)),
      code::kUnknownParameter};
}

void read_one(const BodyField& given, Draft& draft) {
  Job& job = draft.job;
  auto found = index_of(job.endpoint).find(given.key);
  std::optional<Refusal> refusal;
  if (found == index_of(job.endpoint).end()) {
    refusal = refusal_of_absent(given, job.endpoint);
  } else {
    const Parameter& parameter = *found->second;
    if (parameter.treatment == Treatment::honoured) return parameter.read(given.field, draft);
    if (parameter.treatment == Treatment::inert) {
      job.ignored.emplace_back(parameter.key);
      return;
    }
    const Json& value = given.field.value();
    if (parameter.is_neutral != nullptr && parameter.is_neutral(value)) return;
    refusal = Refusal{
        given.field.path(),
        format(
            "expected {}, found {} ({})", parameter.expected, found_text(value), parameter.remedy),
        parameter.code};
  }
  if (!draft.lenient) throw Refusal(*refusal);
  job.ignored.emplace_back(given.key);
}

}  // namespace

bool read_parameters(const std::vector<BodyField>& fields, bool lenient, Job& job) {
  Draft draft(job);
  draft.lenient = lenient;
  for (const BodyField& given : fields) {
    if (!given.field.value().is_null()) read_one(given, draft);
  }
  settle(draft, fields);
  return draft.seed.has_value();
}

std::string_view parameter_identity(std::string_view key) {
  return key == "max_completion_tokens" ? "max_tokens" : key;
}

}  // namespace nightsweep
