#include "runner/request.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include "base/format.h"

namespace nightsweep {

namespace {

ApiError api_error(std::string message, std::string param, std::string code = "") {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  error.code = std::move(code);
  return error;
}

const char* prompt_field(const Job& job) {
  return job.endpoint == Endpoint::chat ? "messages" : "prompt";
}

// Seconds that strftime would show as local time.
int64_t local_clock(int64_t unix_s) {
  auto time = static_cast<std::time_t>(unix_s);
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return unix_s;
  return unix_s + local.tm_gmtoff;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Variables that a line must not give a second time.
bool is_reserved_variable(const std::string& name) {
  for (const char* reserved :
       {"messages", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token"}) {
    if (name == reserved) return true;
  }
  return false;
}

// Ids of the parameters that the vocabulary does not have.
std::optional<ApiError> check_ids(const Parameters& parameters, uint32_t n_vocab) {
  for (const auto& [id, bias] : parameters.logit_bias) {
    if (id >= n_vocab) {
      return api_error(
          format("expected token ids below {}, found {}", n_vocab, id), "logit_bias",
          "invalid_value");
    }
  }
  for (const auto& [ids, param] :
       {std::pair(&parameters.stop_token_ids, "stop_token_ids"),
        std::pair(&parameters.allowed_token_ids, "allowed_token_ids")}) {
    for (int64_t id : *ids) {
      if (id >= 0 && id < n_vocab) continue;
      return api_error(
          format("expected token ids below {}, found {}", n_vocab, id), param, "invalid_value");
    }
  }
  return std::nullopt;
}

SamplingParams sampling_params(const Parameters& parameters, size_t choice) {
  SamplingParams sampling;
  sampling.temperature = parameters.temperature;
  sampling.top_p = parameters.top_p;
  sampling.min_p = parameters.min_p;
  sampling.top_k = parameters.top_k;
  sampling.typical_p = parameters.typical_p;
  for (int64_t id : parameters.allowed_token_ids)
    sampling.allowed.push_back(static_cast<uint32_t>(id));
  sampling.repetition_penalty = parameters.repetition_penalty;
  sampling.frequency_penalty = parameters.frequency_penalty;
  sampling.presence_penalty = parameters.presence_penalty;
  for (const auto& [id, bias] : parameters.logit_bias)
    sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  sampling.seed = parameters.seed;
  sampling.choice = static_cast<uint32_t>(choice);
  return sampling;
}

const char* reason_text(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";

// Cuts what stands in <think> off the text of a choice. `begins_inside`: the prompt ended in it.
void split_reasoning(Choice& choice, bool begins_inside) {
  std::string_view text = choice.text;
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text.substr(start).starts_with(kThink)) {
    text.remove_prefix(start + kThink.size());
  } else if (!begins_inside) {
    return;
  }
  const size_t end = text.find(kEndThink);
  std::string rest;
  if (end != std::string_view::npos) {
    const std::string_view behind = text.substr(end + kEndThink.size());
    rest = behind.substr(std::min(behind.find_first_not_of(" \t\r\n"), behind.size()));
  }
  choice.reasoning = std::string(trimmed(text.substr(0, end)));
  choice.text = std::move(rest);
}

}  // namespace

bool cut_after_message(std::vector<TextSpan>& spans, const std::string& message) {
  // A template may trim a message; what it wrote is looked for without its outer blanks, and
  // taken with the trailing ones where they are still there.
  std::string_view core = trimmed(message);
  if (core.empty()) return false;
  std::string_view with_tail = std::string_view(message).substr(message.find(core));
  for (size_t i = spans.size(); i-- > 0;) {
    if (spans[i].parse_special) continue;
    size_t at = spans[i].text.rfind(core);
    if (at == std::string::npos) continue;
    bool keeps_tail = spans[i].text.compare(at, with_tail.size(), with_tail) == 0;
    spans[i].text.resize(at + (keeps_tail ? with_tail.size() : core.size()));
    spans.resize(i + 1);
    return true;
  }
  return false;
}

RequestMaker::RequestMaker(
    const Tokenizer& tokenizer,
    const ChatTemplate* chat_template,
    std::string no_template,
    uint32_t context_tokens)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      no_template_(std::move(no_template)),
      context_tokens_(context_tokens) {}

// A field that only a template can honour is refused where the template does not know it.
std::optional<ApiError> RequestMaker::check_template_fields(const Job& job) const {
  const auto refuse = [](const char* name) {
    return api_error(
        format("expected {} to be left out: the model's chat template does not know it", name),
        name, "unsupported_parameter");
  };
  if (!job.tools.is_null() && !chat_template_->mentions("tools")) return refuse("tools");
  if (!job.documents.is_null() && !chat_template_->mentions("documents")) {
    return refuse("documents");
  }
  if (job.reasoning_effort && !chat_template_->mentions("reasoning_effort")) {
    return refuse("reasoning_effort");
  }
  if (job.verbosity && !chat_template_->mentions("verbosity")) return refuse("verbosity");
  if (job.separate_reasoning && !chat_template_->contains(kEndThink)) {
    return refuse("separate_reasoning");
  }
  return std::nullopt;
}

std::variant<TokenIds, ApiError> RequestMaker::chat_prompt(const Job& job, int64_t submitted_unix_s)
    const {
  if (chat_template_ == nullptr) {
    return api_error(
        format("{} (use /v1/completions with a prompt instead)", no_template_), "messages",
        "unsupported_value");
  }
  if (auto error = check_template_fields(job)) return *error;
  Json variables = Json::Object{};
  // As Hugging Face does: defined, and none where there are none.
  variables.set("tools", job.tools);
  variables.set("documents", job.documents);
  if (job.reasoning_effort) variables.set("reasoning_effort", *job.reasoning_effort);
  if (job.verbosity) variables.set("verbosity", *job.verbosity);
  if (job.chat_template_kwargs.is_object()) {
    for (const auto& [name, value] : job.chat_template_kwargs.as_object()) {
      if (is_reserved_variable(name)) {
        return api_error(
            format("expected variables of the template, found {}, which is set elsewhere", name),
            "chat_template_kwargs", "invalid_value");
      }
      variables.set(name, value);
    }
  }
  variables.set("messages", job.messages);
  variables.set("add_generation_prompt", job.add_generation_prompt && !job.continue_final_message);
  if (tokenizer_.bos() >= 0) {
    variables.set("bos_token", tokenizer_.token_bytes(static_cast<uint32_t>(tokenizer_.bos())));
  }
  if (tokenizer_.eos() >= 0) {
    variables.set("eos_token", tokenizer_.token_bytes(static_cast<uint32_t>(tokenizer_.eos())));
  }

  std::vector<TextSpan> spans;
  try {
    spans = chat_template_->render(variables, local_clock(submitted_unix_s));
  } catch (const TemplateError& error) {
    return api_error(
        format("the model's chat template refuses it: {}", error.what()), "messages",
        "invalid_value");
  }
  if (spans.empty()) {
    return api_error(
        "expected messages that the model's chat template writes out, found that it renders to "
        "nothing",
        "messages", "invalid_value");
  }
  if (job.continue_final_message) {
    const Json::Array& messages = job.messages.as_array();
    const Json* content = messages.empty() ? nullptr : messages.back().find("content");
    if (content == nullptr || !content->is_string() ||
        !cut_after_message(spans, content->as_string())) {
      return api_error(
          "expected a last message whose text the model's chat template writes out",
          "continue_final_message", "unsupported_value");
    }
  }
  TokenIds ids = tokenizer_.encode(spans, job.add_special_tokens);
  // Most templates write the BOS themselves; it is never there twice.
  if (tokenizer_.adds_bos() && tokenizer_.bos() >= 0) {
    auto bos = static_cast<uint32_t>(tokenizer_.bos());
    if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  }
  return ids;
}

std::variant<TokenIds, ApiError> RequestMaker::text_prompt(const Job& job, const Prompt& prompt)
    const {
  if (const auto* ids = std::get_if<TokenIds>(&prompt)) {
    for (uint32_t id : *ids) {
      if (id >= tokenizer_.n_tokens()) {
        return api_error(
            format("expected token ids below {}, found {}", tokenizer_.n_tokens(), id), "prompt",
            "invalid_value");
      }
    }
    return *ids;
  }
  // A completion prompt is the whole text as its author wrote it, markers included.
  return tokenizer_.encode(std::get<std::string>(prompt), job.add_special_tokens, true);
}

// As vLLM does: each word at the beginning of a text, and behind a space where that is another
// token first and no longer sequence.
std::vector<std::vector<uint32_t>> RequestMaker::bad_words_of(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<uint32_t>> sequences;
  for (const std::string& word : words) {
    const std::string core = word.substr(word.find_first_not_of(' '));
    std::vector<uint32_t> plain = tokenizer_.encode(core, false, false);
    std::vector<uint32_t> spaced = tokenizer_.encode(" " + core, false, false);
    const bool is_other = !spaced.empty() && spaced.size() == plain.size() && spaced[0] != plain[0];
    if (!plain.empty()) sequences.push_back(std::move(plain));
    if (is_other) sequences.push_back(std::move(spaced));
  }
  return sequences;
}

void RequestMaker::truncate(TokenIds& ids, int64_t n_wanted) const {
  const size_t most = n_wanted < 0 ? context_tokens_ - 1 : static_cast<size_t>(n_wanted);
  if (ids.size() > most) ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
}

std::variant<PromptTokens, ApiError> RequestMaker::prompts(const Job& job, int64_t submitted_unix_s)
    const {
  if (auto error = check_ids(job.parameters, tokenizer_.n_tokens())) return *error;
  PromptTokens all;
  size_t n = job.endpoint == Endpoint::chat ? 1 : job.prompts.size();
  for (size_t i = 0; i < n; ++i) {
    std::variant<TokenIds, ApiError> made = job.endpoint == Endpoint::chat
                                                ? chat_prompt(job, submitted_unix_s)
                                                : text_prompt(job, job.prompts[i]);
    if (const auto* error = std::get_if<ApiError>(&made)) return *error;
    auto& ids = std::get<TokenIds>(made);
    if (job.truncate_prompt_tokens) truncate(ids, *job.truncate_prompt_tokens);
    std::string which = n > 1 ? format(" (prompt {} of {})", i + 1, n) : "";
    if (ids.empty()) {
      return api_error(
          "expected a prompt of at least one token, found none" + which, prompt_field(job),
          "invalid_value");
    }
    if (ids.size() >= context_tokens_) {
      return api_error(
          format(
              "expected a prompt of fewer than {} tokens (the context), found {}{}",
              context_tokens_, ids.size(), which),
          prompt_field(job), "context_length_exceeded");
    }
    all.push_back(std::move(ids));
  }
  return all;
}

SequenceRequest RequestMaker::sequence(
    const Job& job,
    const PromptTokens& prompts,
    size_t index,
    TokenIds resumed) const {
  const Parameters& parameters = job.parameters;
  SequenceRequest request;
  request.prompt = prompts[index / static_cast<size_t>(parameters.n)];
  request.resumed = std::move(resumed);
  request.sampling = sampling_params(parameters, index);
  if (parameters.max_tokens) {
    uint64_t room = context_tokens_ - request.prompt.size();
    request.max_tokens = std::min(static_cast<uint64_t>(*parameters.max_tokens), room);
  }
  request.min_tokens = static_cast<uint64_t>(parameters.min_tokens);
  request.ignore_eos = parameters.ignore_eos;
  request.stop = parameters.stop;
  request.include_stop_in_output = parameters.include_stop_str_in_output;
  for (int64_t id : parameters.stop_token_ids)
    request.stop_token_ids.push_back(static_cast<uint32_t>(id));
  request.bad_words = bad_words_of(parameters.bad_words);
  request.skip_special_tokens = parameters.skip_special_tokens;
  request.wants_logprobs = parameters.logprobs;
  request.n_top_logprobs = static_cast<uint32_t>(parameters.top_logprobs);
  request.echo_logprobs = parameters.echo && parameters.logprobs;
  return request;
}

AnswerLogprob RequestMaker::logprob(const AnswerToken& token) const {
  AnswerLogprob shown;
  shown.token_bytes = tokenizer_.token_bytes(token.id);
  shown.logprob = token.logprob;
  for (const TokenLogprob& other : token.top)
    shown.top.emplace_back(tokenizer_.token_bytes(other.token), other.logprob);
  return shown;
}

std::vector<Choice> RequestMaker::choices(
    const Job& job,
    const PromptTokens& prompts,
    std::span<const SequenceResult> results) const {
  std::vector<Choice> all;
  for (size_t index = 0; index < results.size(); ++index) {
    const SequenceResult& result = results[index];
    Choice choice;
    choice.index = static_cast<uint32_t>(index);
    choice.finish_reason = reason_text(result.reason);
    if (job.parameters.echo) {
      size_t prompt = index / static_cast<size_t>(job.parameters.n);
      const auto* text = std::get_if<std::string>(&job.prompts[prompt]);
      choice.text = text != nullptr ? *text : tokenizer_.decode(prompts[prompt], false);
      for (size_t i = 0; i < result.prompt_logprobs.size(); ++i) {
        choice.logprobs.push_back(logprob(result.prompt_logprobs[i]));
        if (i == 0) {
          choice.logprobs.back().is_null = true;
          choice.logprobs.back().top.clear();
        }
      }
    }
    choice.text += result.text;
    const TokenIds& prompt_ids = prompts[index / static_cast<size_t>(job.parameters.n)];
    if (job.separate_reasoning) {
      const size_t n_tail = std::min<size_t>(prompt_ids.size(), 8);
      const std::string tail = tokenizer_.decode(std::span(prompt_ids).last(n_tail), false);
      split_reasoning(choice, trimmed(tail).ends_with(kThink));
    }
    if (job.parameters.return_token_ids) {
      choice.prompt_token_ids = prompt_ids;
      choice.token_ids = result.tokens;
    }
    for (const AnswerToken& token : result.logprobs)
      choice.logprobs.push_back(logprob(token));
    all.push_back(std::move(choice));
  }
  return all;
}

}  // namespace nightsweep
