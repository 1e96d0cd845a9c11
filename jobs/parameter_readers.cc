#include "jobs/parameter_readers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr int64_t kMaxTokenId = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxStops = 16;

}  // namespace

void read_stop(const Field& field, Draft& draft) {
  constexpr const char* kExpected = "a string or a list of up to 16 strings";
  std::vector<std::string>& stop = draft.job.parameters.stop;
  auto read_one = [&](const Field& one) {
    if (one.string().empty()) one.refuse(code::kInvalidValue, "a string that is not empty");
    stop.push_back(one.string());
  };
  if (field.value().is_string()) return read_one(field);
  const Json::Array& strings = field.array(kExpected);
  if (strings.size() > kMaxStops) {
    throw Refusal{
        field.path(), format("expected {}, found {} of them", kExpected, strings.size()),
        code::kInvalidValue};
  }
  for (size_t i = 0; i < strings.size(); ++i)
    read_one(field.element(i));
}

void read_stop_token_ids(const Field& field, Draft& draft) {
  size_t count = field.array("a list of token ids").size();
  for (size_t i = 0; i < count; ++i) {
    draft.job.parameters.stop_token_ids.push_back(field.element(i).integer(0, kMaxTokenId));
  }
}

void read_logit_bias(const Field& field, Draft& draft) {
  auto& bias = draft.job.parameters.logit_bias;
  for (const auto& [key, value] : field.object()) {
    uint32_t id = 0;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    bool is_canonical = key == "0" || (!key.empty() && key[0] != '0');
    if (error != std::errc() || end != key.data() + key.size() || !is_canonical) {
      throw Refusal{
          field.path(),
          format("expected token ids such as \"1234\" as keys, found \"{}\"", key_text(key)),
          code::kInvalidValue};
    }
    bias.emplace_back(id, field.member(key, value).number(-100, 100));
  }
  std::sort(bias.begin(), bias.end());
}

void read_template_kwargs(const Field& field, Draft& draft) {
  for (const auto& [key, value] : field.object()) {
    // These reach the template from the request itself; twice would make one of them void.
    if (key == "messages" || key == "tools" || key == "add_generation_prompt" ||
        key == "continue_final_message") {
      throw Refusal{
          field.member_path(key),
          format("expected variables of the template, found \"{}\", a field of the request", key),
          code::kInvalidValue};
    }
  }
  draft.job.chat_template_kwargs = field.value();
}

// Definitions for the template. What is in them is the template's and the model's business.
void read_tools(const Field& field, Draft& draft) {
  const Json::Array& tools = field.array("a list of tool definitions");
  for (size_t i = 0; i < tools.size(); ++i) {
    const Field tool = field.element(i);
    tool.object();
    const Json* type = tool.value().find("type");
    if (type != nullptr) {
      const Field type_field = tool.member("type", *type);
      if (type_field.string() != "function") {
        type_field.refuse(code::kUnsupportedValue, "\"function\"");
      }
    }
  }
  if (!tools.empty()) draft.job.tools = field.value();
}

void read_tool_choice(const Field& field, Draft& draft) {
  if (field.value() == Json("none") || field.value() == Json("auto")) {
    draft.tool_choice = field.value().as_string();
    return;
  }
  field.refuse(code::kUnsupportedValue, "\"none\" (the answers are not parsed for tool calls)");
}

void read_documents(const Field& field, Draft& draft) {
  if (!field.array("a list of documents").empty()) draft.job.documents = field.value();
}

void read_allowed_token_ids(const Field& field, Draft& draft) {
  size_t count = field.array("a list of token ids").size();
  for (size_t i = 0; i < count; ++i) {
    draft.job.parameters.allowed_token_ids.push_back(field.element(i).integer(0, kMaxTokenId));
  }
}

void read_bad_words(const Field& field, Draft& draft) {
  size_t count = field.array("a list of words").size();
  for (size_t i = 0; i < count; ++i) {
    const Field word = field.element(i);
    if (word.string().find_first_not_of(' ') == std::string::npos) {
      word.refuse(code::kInvalidValue, "a word");
    }
    draft.job.parameters.bad_words.push_back(word.string());
  }
}

void read_truncation(const Field& field, Draft& draft) {
  const int64_t n = field.integer(-1, kMaxTokens);
  if (n == 0) field.refuse(code::kInvalidValue, "-1 (as many as fit) or at least 1");
  draft.job.truncate_prompt_tokens = n;
}

}  // namespace nightsweep
