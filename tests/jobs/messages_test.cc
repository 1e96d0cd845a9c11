#include "jobs/messages.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "support/lines.h"

namespace nightsweep {
namespace {

std::string chat_of(std::string_view messages) {
  return format(R"({{"body":{{"messages":{}}}}})", messages);
}

std::string messages_of(std::string_view messages) {
  return job_of(chat_of(messages)).messages.dump();
}

std::string refusal_of_messages(std::string_view messages) {
  return refusal_of(chat_of(messages));
}

std::string completion_of(std::string_view prompt) {
  return format(R"({{"prompt":{}}})", prompt);
}

TEST(Messages, all_roles_pass_as_they_are) {
  const char* messages =
      R"([{"role":"system","content":"s"},{"role":"developer","content":"d"},)"
      R"({"role":"user","content":"u","name":"n"},{"role":"assistant","content":"a"},)"
      R"({"role":"tool","content":"t","tool_call_id":"c"}])";
  EXPECT_EQ(messages_of(messages), messages);
}

TEST(Messages, text_parts_are_joined_with_line_feeds) {
  EXPECT_EQ(
      messages_of(
          R"([{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}])"),
      R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(
      messages_of(R"([{"role":"user","content":[{"type":"text","text":""}]}])"),
      R"([{"role":"user","content":""}])");
}

TEST(Messages, other_parts_are_refused) {
  for (const char* type : {"image_url", "input_audio", "file", "refusal", "video_url"}) {
    LineError error =
        error_of(chat_of(format(R"([{{"role":"user","content":[{{"type":"{}"}}]}}])", type)));
    EXPECT_EQ(error.field, "body.messages[0].content[0].type");
    EXPECT_EQ(error.code, "unsupported_value");
    EXPECT_EQ(error.api_error().param, "messages[0].content[0].type");
    EXPECT_NE(error.message.find(type), std::string::npos);
  }
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":[{"text":"x"}]}])"),
      "body.messages[0].content[0].type: expected \"text\", found nothing");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":[{"type":"text"}]}])"),
      "body.messages[0].content[0].text: expected a string, found nothing");
  EXPECT_EQ(
      error_of(
          chat_of(R"([{"role":"user","content":[{"type":"text","text":"x","cache_control":{}}]}])"))
          .code,
      "unknown_parameter");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":["x"]}])"),
      "body.messages[0].content[0]: expected an object, found \"x\"");
}

TEST(Messages, empty_and_misshaped_lists_are_refused) {
  EXPECT_EQ(
      refusal_of_messages("[]"),
      "body.messages: expected at least one message, found an empty list");
  EXPECT_EQ(
      refusal_of_messages("\"x\""), "body.messages: expected a list of messages, found \"x\"");
  EXPECT_EQ(refusal_of_messages("[1]"), "body.messages[0]: expected an object, found the number 1");
  EXPECT_EQ(
      refusal_of_messages(R"([{"content":"x"}])"),
      "body.messages[0].role: expected a role, found nothing");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":"x"},{"role":"narrator","content":"x"}])"),
      "body.messages[1].role: expected system, developer, user, assistant or tool, found "
      "\"narrator\"");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user"}])"),
      "body.messages[0].content: expected a string or a list of text parts, found nothing");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":null}])"),
      "body.messages[0].content: expected a string or a list of text parts, found null");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":[]}])"),
      "body.messages[0].content: expected a string or a list of text parts, found an array");
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"user","content":3}])"),
      "body.messages[0].content: expected a string or a list of text parts, found the number 3");
}

TEST(Messages, past_tool_calls_stand_in_for_content) {
  const char* messages =
      R"([{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"t"}])";
  EXPECT_EQ(messages_of(messages), messages);
  EXPECT_EQ(
      refusal_of_messages(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])"),
      "body.messages[0].tool_calls[0].function.name: expected a string, found nothing");
  EXPECT_EQ(
      error_of(chat_of(R"([{"role":"user","content":"x","tool_calls":[]}])")).code,
      "unknown_parameter");
}

TEST(Messages, unknown_members_are_refused_unless_lenient) {
  const char* messages = R"([{"role":"user","content":"x","prefix":true}])";
  LineError error = error_of(chat_of(messages));
  EXPECT_EQ(error.field, "body.messages[0].prefix");
  EXPECT_EQ(error.code, "unknown_parameter");
  LineOptions lenient;
  lenient.lenient = true;
  Job job = job_of(chat_of(messages), lenient);
  EXPECT_EQ(job.messages.dump(), R"([{"role":"user","content":"x"}])");
  EXPECT_EQ(job.ignored, std::vector<std::string>{"body.messages[0].prefix"});
}

TEST(Messages, null_members_count_as_absent) {
  EXPECT_EQ(
      messages_of(
          R"([{"role":"assistant","content":"x","refusal":null,"tool_calls":null,"audio":null}])"),
      R"([{"role":"assistant","content":"x"}])");
}

TEST(Messages, only_a_message_with_content_can_be_continued) {
  EXPECT_EQ(
      error_of(R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}],)"
               R"("continue_final_message":true})")
          .field,
      "continue_final_message");
}

TEST(Prompt, has_four_forms) {
  EXPECT_EQ(job_of(completion_of("\"a\"")).prompts, std::vector<Prompt>{"a"});
  EXPECT_EQ(job_of(completion_of("\"\"")).prompts, std::vector<Prompt>{""});
  EXPECT_EQ(job_of(completion_of(R"(["a","b"])")).prompts, (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(
      job_of(completion_of("[1,2.0,4294967295]")).prompts,
      std::vector<Prompt>{(TokenIds{1, 2, 4294967295})});
  EXPECT_EQ(
      job_of(completion_of("[[1],[2,3]]")).prompts,
      (std::vector<Prompt>{TokenIds{1}, TokenIds{2, 3}}));
}

TEST(Prompt, mixed_and_empty_forms_are_refused) {
  EXPECT_EQ(
      refusal_of(completion_of("[]")), "prompt: expected at least one prompt, found an empty list");
  EXPECT_EQ(
      refusal_of(completion_of("[[]]")),
      "prompt[0]: expected at least one token id, found an array");
  EXPECT_EQ(
      refusal_of(completion_of(R"(["a",1])")), "prompt[1]: expected a string, found the number 1");
  EXPECT_EQ(
      refusal_of(completion_of(R"([1,"a"])")),
      "prompt[1]: expected an integer from 0 to 4294967295, found \"a\"");
  EXPECT_EQ(
      refusal_of(completion_of("[[1],2]")),
      "prompt[1]: expected a list of token ids, found the number 2");
  EXPECT_EQ(error_of(completion_of("[-1]")).field, "prompt[0]");
  EXPECT_EQ(error_of(completion_of("[4294967296]")).field, "prompt[0]");
  EXPECT_EQ(error_of(completion_of("[1.5]")).field, "prompt[0]");
  EXPECT_EQ(error_of(completion_of("[null]")).field, "prompt[0]");
  EXPECT_EQ(error_of(completion_of("{}")).code, "invalid_type");
  EXPECT_EQ(error_of(completion_of("null")).code, "missing_required_parameter");
}

TEST(Prompt, one_line_has_a_bounded_number_of_answers) {
  Json::Array prompts(33, Json("x"));
  std::string line = completion_of(Json(prompts).dump());
  line.pop_back();
  EXPECT_EQ(job_of(line + ",\"n\":124}").parameters.n, 124);
  EXPECT_EQ(
      refusal_of(line + ",\"n\":125}"),
      "prompt: expected at most 4096 answers of one line, found 33 prompts with 125 choices each "
      "(split the line)");
}

}  // namespace
}  // namespace nightsweep
