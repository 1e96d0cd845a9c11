#include "jobs/messages.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr std::array<std::string_view, 5> kRoles = {
    "system", "developer", "user", "assistant", "tool"};

constexpr const char* kPartsText = "a string or a list of text parts";

std::string read_part(const Field& part) {
  const Json::Object& members = part.object();
  const Json* type = part.value().find("type");
  if (type == nullptr) {
    throw Refusal{part.member_path("type"), "expected \"text\", found nothing", code::kMissing};
  }
  Field type_field = part.member("type", *type);
  if (type_field.string() != "text") {
    type_field.refuse(code::kUnsupportedValue, "\"text\" (images, audio and files cannot be read)");
  }
  for (const auto& [key, value] : members) {
    if (key != "type" && key != "text" && !value.is_null()) {
      throw Refusal{
          part.member_path(key), format("expected type and text, found \"{}\"", key_text(key)),
          code::kUnknownParameter};
    }
  }
  const Json* text = part.value().find("text");
  if (text == nullptr) {
    throw Refusal{part.member_path("text"), "expected a string, found nothing", code::kMissing};
  }
  return part.member("text", *text).string();
}

Json read_content(const Field& content) {
  if (content.value().is_string()) return content.value();
  const Json::Array& parts = content.array(kPartsText);
  if (parts.empty()) content.refuse(code::kInvalidValue, kPartsText);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += '\n';
    text += read_part(content.element(i));
  }
  return text;
}

void check_tool_call(const Field& call) {
  call.object();
  const Json* function = call.value().find("function");
  if (function == nullptr) {
    throw Refusal{
        call.member_path("function"), "expected an object with name and arguments, found nothing",
        code::kMissing};
  }
  Field function_field = call.member("function", *function);
  function_field.object();
  const Json* name = function->find("name");
  if (name == nullptr) {
    throw Refusal{
        function_field.member_path("name"), "expected a string, found nothing", code::kMissing};
  }
  function_field.member("name", *name).string();
}

// Whether the member goes to the template; throws Refusal where its value is wrong.
bool check_other_member(
    const Field& member,
    std::string_view key,
    std::string_view role,
    bool lenient,
    std::vector<std::string>& ignored) {
  if (key == "name" || key == "tool_call_id" || key == "reasoning_content") {
    member.string();
    return true;
  }
  if (key == "tool_calls" && role == "assistant") {
    const Json::Array& calls = member.array("a list of tool calls");
    for (size_t i = 0; i < calls.size(); ++i)
      check_tool_call(member.element(i));
    return true;
  }
  if (!lenient) {
    throw Refusal{
        member.path(),
        format(
            "expected role, content, name, tool_calls, tool_call_id or reasoning_content, "
            "found \"{}\" in a message of {}",
            key_text(key), role),
        code::kUnknownParameter};
  }
  ignored.push_back(member.path());
  return false;
}

Json read_message(const Field& field, bool lenient, std::vector<std::string>& ignored) {
  const Json::Object& members = field.object();
  const Json* role_value = field.value().find("role");
  if (role_value == nullptr) {
    throw Refusal{field.member_path("role"), "expected a role, found nothing", code::kMissing};
  }
  Field role_field = field.member("role", *role_value);
  const std::string& role = role_field.string();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    role_field.refuse(code::kInvalidValue, "system, developer, user, assistant or tool");
  }
  Json message = Json::Object{};
  for (const auto& [key, value] : members) {
    Field member = field.member(key, value);
    if (key == "content" && !value.is_null()) {
      message.set(key, read_content(member));
    } else if (
        key == "role" || key == "content" ||
        (!value.is_null() && check_other_member(member, key, role, lenient, ignored))) {
      message.set(key, value);
    }
  }
  const Json* content = message.find("content");
  bool has_content = content != nullptr && !content->is_null();
  const Json* calls = message.find("tool_calls");
  bool has_calls = calls != nullptr && !calls->as_array().empty();
  if (!has_content && !has_calls) {
    throw Refusal{
        field.member_path("content"),
        format("expected {}, found {}", kPartsText, content == nullptr ? "nothing" : "null"),
        content == nullptr ? code::kMissing : code::kInvalidType};
  }
  return message;
}

TokenIds read_token_ids(const Field& field) {
  const Json::Array& values = field.array("a list of token ids");
  if (values.empty()) field.refuse(code::kInvalidValue, "at least one token id");
  TokenIds ids;
  ids.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t id = field.element(i).integer(0, std::numeric_limits<uint32_t>::max());
    ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

}  // namespace

Json read_messages(const Field& field, bool lenient, std::vector<std::string>& ignored) {
  const Json::Array& values = field.array("a list of messages");
  if (values.empty()) {
    throw Refusal{
        field.path(), "expected at least one message, found an empty list", code::kInvalidValue};
  }
  Json::Array messages;
  messages.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    messages.push_back(read_message(field.element(i), lenient, ignored));
  }
  return messages;
}

std::vector<Prompt> read_prompt(const Field& field) {
  constexpr const char* kExpected =
      "a string, a list of strings, a list of token ids, or a list of lists of token ids";
  if (field.value().is_string()) return {field.value().as_string()};
  const Json::Array& values = field.array(kExpected);
  if (values.empty()) {
    throw Refusal{
        field.path(), "expected at least one prompt, found an empty list", code::kInvalidValue};
  }
  if (values.front().is_number()) return {read_token_ids(field)};
  std::vector<Prompt> prompts;
  prompts.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Field element = field.element(i);
    if (values.front().is_string()) {
      prompts.emplace_back(element.string());
    } else if (values.front().is_array()) {
      prompts.emplace_back(read_token_ids(element));
    } else {
      field.element(0).refuse(code::kInvalidType, "a string, a token id or a list of token ids");
    }
  }
  return prompts;
}

}  // namespace nightsweep
