// What a job is: one request of a batch file, its parameters, and its answer. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace nightsweep {

enum class Endpoint { chat, completions };
const char* endpoint_url(Endpoint endpoint);  // "/v1/chat/completions"

// OpenAI's error object.
struct ApiError {
  int status_code = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // empty: null
  std::string code;   // empty: null
};

struct Parameters {
  double temperature = 1.0;
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  int64_t top_k = 0;
  double repetition_penalty = 1.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  std::vector<std::pair<uint32_t, double>> logit_bias;
  std::vector<int64_t> allowed_token_ids;  // empty: all
  std::vector<std::string> bad_words;      // none of them may be written
  int64_t seed = 0;                        // always set: drawn at submit where the line has none
  std::optional<int64_t> max_tokens;       // none: the rest of the context
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool echo = false;  // completions
  bool logprobs = false;
  bool return_token_ids = false;
  int64_t top_logprobs = 0;
  int64_t n = 1;

  bool operator==(const Parameters&) const = default;
};

using TokenIds = std::vector<uint32_t>;
using Prompt = std::variant<std::string, TokenIds>;

struct Job {
  std::string custom_id;
  uint64_t line = 0;  // of the file, from 1
  Endpoint endpoint = Endpoint::chat;
  std::string model;          // as the line has it; may be empty
  Json messages;              // chat: array as given, text parts joined, null members left out
  Json chat_template_kwargs;  // chat: object or null
  Json tools;                 // chat: array or null; the model may read them, not call them
  Json documents;             // chat: array or null
  std::optional<std::string> reasoning_effort;    // chat: for templates that know it
  std::optional<std::string> verbosity;           // chat: the same
  std::vector<Prompt> prompts;                    // completions: one or more
  std::optional<int64_t> truncate_prompt_tokens;  // the last of them stay; -1: what fits
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool separate_reasoning = false;  // chat: what stands in <think> is no content
  bool add_special_tokens = true;   // where the line is silent: completions true, chat false,
                                    // since the template writes them
  Parameters parameters;
  std::vector<std::string> ignored;  // fields that were accepted and have no effect

  bool operator==(const Job&) const = default;
};

struct AnswerLogprob {
  std::string token_bytes;
  double logprob = 0;
  bool is_null = false;                             // the first prompt token has none
  std::vector<std::pair<std::string, double>> top;  // bytes, logprob
};

struct Choice {
  uint32_t index = 0;
  std::string text;
  std::optional<std::string> reasoning;    // what stood in <think>, where it was asked for
  std::string finish_reason;               // "stop" or "length"
  std::vector<uint32_t> prompt_token_ids;  // if asked for
  std::vector<uint32_t> token_ids;         // if asked for
  std::vector<AnswerLogprob> logprobs;     // if asked for
};

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // of these, not computed again: another request begins alike
  uint64_t completion_tokens = 0;
};

struct Timings {
  double queued_s = 0;
  double prefill_s = 0;
  double decode_s = 0;
  double first_token_s = 0;
  uint64_t sweeps = 0;
  uint32_t attempts = 0;
  double tokens_per_s = 0;
  double energy_j = -1;  // its share by tokens of what the machine used; below 0: not measured
};

struct Answer {
  std::vector<Choice> choices;
  Usage usage;
  Timings timings;
  int64_t seed = 0;
  std::string model;  // as the line named it, else the model's name
  std::string model_fingerprint;
  int64_t created_unix_s = 0;
};

}  // namespace nightsweep
