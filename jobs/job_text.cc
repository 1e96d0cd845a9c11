// A job as text in the queue: compact JSON that leaves out what has its default.
//
// The defaults are those of job.h and belong to the format: changing one there, or a name here,
// takes a new kVersion and a reader for the old one.
#include <limits>

#include "base/error.h"
#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

constexpr int64_t kVersion = 1;

// The one list of what is stored, for both directions: of one job, or of several side by side.
template <typename Visitor, typename... AnyJob>
void visit_fields(Visitor& visit, AnyJob&... job) {
  visit("custom_id", job.custom_id...);
  visit("line", job.line...);
  visit("endpoint", job.endpoint...);
  visit("model", job.model...);
  visit("messages", job.messages...);
  visit("chat_template_kwargs", job.chat_template_kwargs...);
  visit("add_generation_prompt", job.add_generation_prompt...);
  visit("continue_final_message", job.continue_final_message...);
  visit("prompts", job.prompts...);
  visit("tools", job.tools...);
  visit("documents", job.documents...);
  visit("reasoning_effort", job.reasoning_effort...);
  visit("verbosity", job.verbosity...);
  visit("separate_reasoning", job.separate_reasoning...);
  visit("truncate_prompt_tokens", job.truncate_prompt_tokens...);
  visit("add_special_tokens", job.add_special_tokens...);
  visit("ignored", job.ignored...);
  visit("temperature", job.parameters.temperature...);
  visit("top_p", job.parameters.top_p...);
  visit("min_p", job.parameters.min_p...);
  visit("top_k", job.parameters.top_k...);
  visit("repetition_penalty", job.parameters.repetition_penalty...);
  visit("frequency_penalty", job.parameters.frequency_penalty...);
  visit("presence_penalty", job.parameters.presence_penalty...);
  visit("logit_bias", job.parameters.logit_bias...);
  visit("seed", job.parameters.seed...);
  visit("max_tokens", job.parameters.max_tokens...);
  visit("min_tokens", job.parameters.min_tokens...);
  visit("ignore_eos", job.parameters.ignore_eos...);
  visit("stop", job.parameters.stop...);
  visit("stop_token_ids", job.parameters.stop_token_ids...);
  visit("include_stop_str_in_output", job.parameters.include_stop_str_in_output...);
  visit("skip_special_tokens", job.parameters.skip_special_tokens...);
  visit("n", job.parameters.n...);
  visit("logprobs", job.parameters.logprobs...);
  visit("top_logprobs", job.parameters.top_logprobs...);
  visit("echo", job.parameters.echo...);
  visit("typical_p", job.parameters.typical_p...);
  visit("allowed_token_ids", job.parameters.allowed_token_ids...);
  visit("bad_words", job.parameters.bad_words...);
  visit("return_token_ids", job.parameters.return_token_ids...);
}

Json to_json(bool value) {
  return value;
}
Json to_json(int64_t value) {
  return value;
}
Json to_json(uint64_t value) {
  return value;
}
Json to_json(uint32_t value) {
  return value;
}
Json to_json(double value) {
  return value;
}
Json to_json(const std::string& value) {
  return value;
}
const Json& to_json(const Json& value) {
  return value;
}
Json to_json(Endpoint value) {
  return endpoint_url(value);
}
Json to_json(const std::pair<uint32_t, double>& value) {
  return Json::Array{value.first, value.second};
}
Json to_json(const Prompt& value);  // for the elements of the next one
template <typename T>
Json to_json(const std::vector<T>& values) {
  Json::Array array;
  array.reserve(values.size());
  for (const T& value : values)
    array.push_back(to_json(value));
  return array;
}
Json to_json(const Prompt& value) {
  return std::visit([](const auto& prompt) { return to_json(prompt); }, value);
}
template <typename T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json();
}

[[noreturn]] void damaged(std::string_view what) {
  fail(
      ErrorKind::queue,
      "a job stored in the queue cannot be read: {} (the queue file is damaged, or was changed by "
      "another program)",
      what);
}

void check(bool is_right) {
  if (!is_right) damaged("a value of another kind was expected");
}

void from_json(const Json& json, bool& value) {
  check(json.is_bool());
  value = json.as_bool();
}
void from_json(const Json& json, int64_t& value) {
  check(json.is_integer());
  value = json.as_integer();
}
void from_json(const Json& json, uint64_t& value) {
  check(json.is_integer() && json.as_integer() >= 0);
  value = static_cast<uint64_t>(json.as_integer());
}
void from_json(const Json& json, uint32_t& value) {
  check(
      json.is_integer() && json.as_integer() >= 0 &&
      json.as_integer() <= std::numeric_limits<uint32_t>::max());
  value = static_cast<uint32_t>(json.as_integer());
}
void from_json(const Json& json, double& value) {
  check(json.is_number());
  value = json.as_double();
}
void from_json(const Json& json, std::string& value) {
  check(json.is_string());
  value = json.as_string();
}
void from_json(const Json& json, Json& value) {
  value = json;
}
void from_json(const Json& json, Endpoint& value) {
  check(json.is_string());
  value = Endpoint::chat;
  if (json.as_string() == endpoint_url(Endpoint::chat)) return;
  check(json.as_string() == endpoint_url(Endpoint::completions));
  value = Endpoint::completions;
}
void from_json(const Json& json, std::pair<uint32_t, double>& value) {
  check(json.is_array() && json.as_array().size() == 2);
  from_json(json.as_array()[0], value.first);
  from_json(json.as_array()[1], value.second);
}
template <typename T>
void from_json(const Json& json, std::optional<T>& value) {
  from_json(json, value.emplace());
}
void from_json(const Json& json, Prompt& value);  // for the elements of the next one
template <typename T>
void from_json(const Json& json, std::vector<T>& values) {
  check(json.is_array());
  values.clear();
  values.reserve(json.as_array().size());
  for (const Json& element : json.as_array())
    from_json(element, values.emplace_back());
}
void from_json(const Json& json, Prompt& value) {
  if (json.is_string()) {
    value = json.as_string();
  } else {
    from_json(json, value.emplace<TokenIds>());
  }
}

}  // namespace

std::string job_to_text(const Job& job) {
  static const Job kDefaults;
  std::string text = format("{{\"v\":{}", kVersion);
  auto store = [&](const char* key, const auto& value, const auto& standard) {
    if (value == standard) return;
    text += ",\"";
    text += key;
    text += "\":";
    text += to_json(value).dump();
  };
  visit_fields(store, job, kDefaults);
  text += '}';
  return text;
}

Job job_from_text(std::string_view text) {
  Json root;
  try {
    root = Json::parse(text, kMaxStoredDepth);
  } catch (const JsonError& error) {
    damaged(error.what());
  }
  const Json* version = root.find("v");
  if (version == nullptr || !version->is_integer()) damaged("it has no version");
  if (version->as_integer() != kVersion) {
    fail(
        ErrorKind::queue,
        "a job stored in the queue has version {}, this program reads version {} (use the program "
        "that submitted it)",
        version->as_integer(), kVersion);
  }
  Job job;
  size_t n_read = 1;
  auto read = [&](const char* key, auto& value) {
    const Json* stored = root.find(key);
    if (stored == nullptr) return;
    from_json(*stored, value);
    ++n_read;
  };
  visit_fields(read, job);
  if (n_read != root.as_object().size()) damaged("it has a field that no job has");
  return job;
}

}  // namespace nightsweep
