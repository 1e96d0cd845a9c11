// Answers to OpenAI's response bodies, and result lines.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/format.h"
#include "jobs/jsonl.h"
#include "jobs/utf8.h"

namespace nightsweep {

namespace {

// JSON has no infinity; OpenAI sends this for "impossible".
constexpr double kLeastLogprob = -9999.0;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json logprob_number(double logprob) {
  return std::isfinite(logprob) ? logprob : kLeastLogprob;
}

Json byte_list(std::string_view bytes) {
  Json::Array list;
  list.reserve(bytes.size());
  for (char byte : bytes)
    list.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return list;
}

Json::Object token_entry(std::string_view token_bytes, Json logprob) {
  return {
      {"token", lossy_utf8(token_bytes)},
      {"logprob", std::move(logprob)},
      {"bytes", byte_list(token_bytes)},
  };
}

Json chat_logprobs(const Choice& choice) {
  Json::Array content;
  content.reserve(choice.logprobs.size());
  for (const AnswerLogprob& token : choice.logprobs) {
    Json::Object entry =
        token_entry(token.token_bytes, token.is_null ? Json() : logprob_number(token.logprob));
    Json::Array top;
    for (const auto& [bytes, logprob] : token.top) {
      top.emplace_back(token_entry(bytes, logprob_number(logprob)));
    }
    entry.emplace_back("top_logprobs", std::move(top));
    content.emplace_back(std::move(entry));
  }
  return Json::Object{{"content", std::move(content)}, {"refusal", nullptr}};
}

// Finds each token's place in the text of its choice, in characters as Python counts them.
class OffsetCounter {
 public:
  explicit OffsetCounter(std::string_view text) : text_(text) {}

  // The place of the next token. A token that is not in the text (a special token, or one cut off
  // by a stop string) has a place and no width.
  int64_t next(std::string_view token_bytes) {
    int64_t offset = is_inside_character() ? n_characters_ - 1 : n_characters_;
    std::string_view rest = text_.substr(at_);
    std::string lossy = lossy_utf8(token_bytes);
    bool has_space = !token_bytes.empty() && token_bytes[0] == ' ';
    if (rest.substr(0, token_bytes.size()) == token_bytes) {
      advance(token_bytes.size());
    } else if (rest.substr(0, lossy.size()) == lossy) {
      advance(lossy.size());
    } else if (has_space && rest.substr(0, token_bytes.size() - 1) == token_bytes.substr(1)) {
      advance(token_bytes.size() - 1);  // SPM drops the space before the first word
    }
    return offset;
  }

 private:
  static bool is_continuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  }
  bool is_inside_character() const { return at_ < text_.size() && is_continuation(text_[at_]); }

  void advance(size_t n_bytes) {
    for (char byte : text_.substr(at_, n_bytes)) {
      if (!is_continuation(byte)) ++n_characters_;
    }
    at_ += n_bytes;
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t n_characters_ = 0;  // begun before at_
};

// A key of its own for each token: parts of characters would all look alike.
std::string token_key(std::string_view bytes) {
  std::string lossy = lossy_utf8(bytes);
  if (lossy == bytes) return lossy;
  std::string key = "bytes:";
  for (char byte : bytes)
    key += format("\\x{:02x}", static_cast<unsigned char>(byte));
  return key;
}

Json completion_logprobs(const Choice& choice) {
  Json::Array tokens;
  Json::Array token_logprobs;
  Json::Array top_logprobs;
  Json::Array text_offset;
  OffsetCounter offsets(choice.text);
  for (const AnswerLogprob& token : choice.logprobs) {
    tokens.emplace_back(token_key(token.token_bytes));
    token_logprobs.push_back(token.is_null ? Json() : logprob_number(token.logprob));
    text_offset.emplace_back(offsets.next(token.token_bytes));
    if (token.is_null) {
      top_logprobs.emplace_back(nullptr);
      continue;
    }
    // Vocabularies exist with two tokens of the same bytes; the likelier one stays.
    Json top = Json::Object{};
    for (const auto& [bytes, logprob] : token.top) {
      std::string key = token_key(bytes);
      if (top.find(key) == nullptr) top.set(key, logprob_number(logprob));
    }
    // The chosen token stands among them, likely or not: OpenAI's "up to logprobs + 1".
    std::string chosen = token_key(token.token_bytes);
    if (top.find(chosen) == nullptr) top.set(chosen, logprob_number(token.logprob));
    top_logprobs.push_back(std::move(top));
  }
  return Json::Object{
      {"tokens", std::move(tokens)},
      {"token_logprobs", std::move(token_logprobs)},
      {"top_logprobs", std::move(top_logprobs)},
      {"text_offset", std::move(text_offset)},
  };
}

Json chat_choice(const Choice& choice, bool has_logprobs) {
  Json message = Json::Object{
      {"role", "assistant"},
      {"content", lossy_utf8(choice.text)},
      {"refusal", nullptr},
  };
  if (choice.reasoning) message.set("reasoning_content", lossy_utf8(*choice.reasoning));
  return Json::Object{
      {"index", choice.index},
      {"message", std::move(message)},
      {"logprobs", has_logprobs ? chat_logprobs(choice) : Json()},
      {"finish_reason", text_or_null(choice.finish_reason)},
  };
}

Json completion_choice(const Choice& choice, bool has_logprobs) {
  return Json::Object{
      {"index", choice.index},
      {"text", lossy_utf8(choice.text)},
      {"logprobs", has_logprobs ? completion_logprobs(choice) : Json()},
      {"finish_reason", text_or_null(choice.finish_reason)},
  };
}

Json id_list(const std::vector<uint32_t>& ids) {
  Json::Array list;
  list.reserve(ids.size());
  for (uint32_t id : ids)
    list.emplace_back(id);
  return list;
}

Json system_fingerprint(const std::string& model_fingerprint) {
  constexpr size_t kDigits = 16;
  if (model_fingerprint.empty()) return nullptr;
  return "fp_" + model_fingerprint.substr(0, kDigits);
}

// The body without what differs between two runs of the same work; how much of a prompt was shared
// depends on who else was there.
std::string stable_body(const std::string& body) {
  Json json = Json::parse(body, kMaxStoredDepth);
  if (!json.is_object()) return body;
  auto is_volatile = [](const Json::Member& member) {
    return member.first == "id" || member.first == "created";
  };
  Json::Object& members = json.as_object();
  members.erase(std::remove_if(members.begin(), members.end(), is_volatile), members.end());
  for (auto& [name, value] : members) {
    if (name != "usage" || !value.is_object()) continue;
    std::erase_if(value.as_object(), [](const Json::Member& member) {
      return member.first == "prompt_tokens_details";
    });
  }
  return json.dump();
}

std::string quoted(std::string_view text) {
  return Json(text).dump();
}

std::string response_text(const ResultLine& result, bool stable) {
  if (result.lost) return "null";
  std::string text = format("{{\"status_code\":{}", result.status_code);
  if (!stable) text += format(",\"request_id\":{}", quoted(result.request_id));
  text += ",\"body\":";
  text += stable ? stable_body(result.body) : result.body;
  text += '}';
  return text;
}

Json lost_object(const LostError& lost) {
  return Json::Object{{"code", lost.code}, {"message", lost.message}};
}

}  // namespace

Json answer_body(const Job& job, const Answer& answer, std::string_view request_id) {
  bool is_chat = job.endpoint == Endpoint::chat;
  Json::Array choices;
  choices.reserve(answer.choices.size());
  for (const Choice& choice : answer.choices) {
    Json& made = choices.emplace_back(
        is_chat ? chat_choice(choice, job.parameters.logprobs)
                : completion_choice(choice, job.parameters.logprobs));
    if (job.parameters.return_token_ids) {
      made.set("prompt_token_ids", id_list(choice.prompt_token_ids));
      made.set("token_ids", id_list(choice.token_ids));
    }
  }
  const Usage& usage = answer.usage;
  return Json::Object{
      {"id", format("{}-{}", is_chat ? "chatcmpl" : "cmpl", request_id)},
      {"object", is_chat ? "chat.completion" : "text_completion"},
      {"created", answer.created_unix_s},
      {"model", answer.model},
      {"choices", std::move(choices)},
      {"usage",
       Json::Object{
           {"prompt_tokens", usage.prompt_tokens},
           {"completion_tokens", usage.completion_tokens},
           {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
           {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}},
       }},
      {"system_fingerprint", system_fingerprint(answer.model_fingerprint)},
  };
}

Json error_body(const ApiError& error) {
  return Json::Object{
      {"error",
       Json::Object{
           {"message", error.message},
           {"type", error.type},
           {"param", text_or_null(error.param)},
           {"code", text_or_null(error.code)},
       }},
  };
}

std::string result_line(const ResultLine& result, bool stable) {
  std::string line = "{";
  if (!stable) line += format("\"id\":{},", quoted(result.id));
  line += format("\"custom_id\":{}", quoted(result.custom_id));
  line += ",\"response\":";
  line += response_text(result, stable);
  line += ",\"error\":";
  line += result.lost ? lost_object(*result.lost).dump() : "null";
  if (!stable && !result.nightsweep.empty()) {
    line += ",\"nightsweep\":";
    line += result.nightsweep;
  }
  line += "}\n";
  return line;
}

Json timings_object(const Answer& answer, const std::vector<std::string>& ignored) {
  const Timings& timings = answer.timings;
  Json object = Json::Object{
      {"queued_s", timings.queued_s},
      {"prefill_s", timings.prefill_s},
      {"decode_s", timings.decode_s},
      {"first_token_s", timings.first_token_s},
      {"sweeps", timings.sweeps},
      {"attempts", timings.attempts},
      {"tokens_per_s", timings.tokens_per_s},
      {"seed", answer.seed},
      {"model_fingerprint", answer.model_fingerprint},
  };
  if (timings.energy_j >= 0) object.set("energy_j", timings.energy_j);
  if (!ignored.empty()) {
    Json::Array names(ignored.begin(), ignored.end());
    object.set("ignored", std::move(names));
  }
  return object;
}

}  // namespace nightsweep
