// Shapes of answers, compared as exact text.
#include <gtest/gtest.h>

#include <limits>

#include "jobs/jsonl.h"

namespace nightsweep {
namespace {

Answer answer_of(std::string text) {
  Answer answer;
  Choice choice;
  choice.text = std::move(text);
  choice.finish_reason = "stop";
  answer.choices = {choice};
  answer.usage = {.prompt_tokens = 12, .completion_tokens = 3};
  answer.model = "m";
  answer.model_fingerprint = "0123456789abcdef0123456789abcdef";
  answer.created_unix_s = 1700000000;
  answer.seed = -5;
  return answer;
}

Job job_for(Endpoint endpoint, bool logprobs = false) {
  Job job;
  job.endpoint = endpoint;
  job.parameters.logprobs = logprobs;
  return job;
}

ResultLine line_for(std::string body) {
  ResultLine line;
  line.id = "batch_req_1";
  line.custom_id = "a\"b";
  line.request_id = "req_1";
  line.body = std::move(body);
  line.nightsweep = R"({"sweeps":3})";
  return line;
}

TEST(AnswerBody, a_chat_has_openais_shape) {
  EXPECT_EQ(
      answer_body(job_for(Endpoint::chat), answer_of("Hi\n\xC3\xA4"), "req_1").dump(),
      "{\"id\":\"chatcmpl-req_1\",\"object\":\"chat.completion\",\"created\":1700000000,"
      "\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
      "\"content\":\"Hi\\n\xC3\xA4\",\"refusal\":null},\"logprobs\":null,"
      "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,"
      "\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":0}},"
      "\"system_fingerprint\":\"fp_0123456789abcdef\"}");
}

TEST(AnswerBody, a_completion_has_openais_shape) {
  Answer answer = answer_of("Hi");
  answer.choices.push_back({.index = 1, .text = "Ho", .finish_reason = "length", .logprobs = {}});
  answer.model_fingerprint = "";
  EXPECT_EQ(
      answer_body(job_for(Endpoint::completions), answer, "r").dump(),
      R"({"id":"cmpl-r","object":"text_completion","created":1700000000,"model":"m","choices":[)"
      R"({"index":0,"text":"Hi","logprobs":null,"finish_reason":"stop"},)"
      R"({"index":1,"text":"Ho","logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,)"
      R"("prompt_tokens_details":{"cached_tokens":0}},)"
      R"("system_fingerprint":null})");
}

TEST(AnswerBody, broken_text_is_marked) {
  Json body = answer_body(job_for(Endpoint::completions), answer_of("a\xF0\x9F"), "r");
  EXPECT_EQ(body.find("choices")->as_array()[0].find("text")->as_string(), "a\xEF\xBF\xBD");
}

AnswerLogprob logprob(std::string bytes, double value) {
  return {.token_bytes = std::move(bytes), .logprob = value, .is_null = false, .top = {}};
}

std::string logprobs_of(const Job& job, const Answer& answer) {
  Json body = answer_body(job, answer, "r");
  return body.find("choices")->as_array()[0].find("logprobs")->dump();
}

TEST(AnswerBody, chat_logprobs_have_bytes_and_lossy_text) {
  Answer answer = answer_of("\xF0\x9F\x98\x80");
  AnswerLogprob first = logprob("\xF0\x9F", -0.5);
  first.top = {{"\xF0\x9F", -0.5}, {"a", -std::numeric_limits<double>::infinity()}};
  answer.choices[0].logprobs = {first, logprob("\x98\x80", -0.25)};
  EXPECT_EQ(
      logprobs_of(job_for(Endpoint::chat, true), answer),
      "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[240,159],"
      "\"top_logprobs\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[240,159]},"
      "{\"token\":\"a\",\"logprob\":-9999.0,\"bytes\":[97]}]},"
      "{\"token\":\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"logprob\":-0.25,\"bytes\":[152,128],"
      "\"top_logprobs\":[]}],\"refusal\":null}");
}

TEST(AnswerBody, completion_logprobs_have_the_older_shape) {
  Answer answer = answer_of("Once\xC3\xA4 upon");
  AnswerLogprob begin = logprob("Once", 0);
  begin.is_null = true;
  AnswerLogprob upon = logprob(" upon", -1.5);
  upon.top = {{" upon", -1.5}, {"\xF0", -2}, {"\xF1", -3}};
  answer.choices[0].logprobs = {begin, logprob("\xC3", -1), logprob("\xA4", -2), upon};
  EXPECT_EQ(
      logprobs_of(job_for(Endpoint::completions, true), answer),
      "{\"tokens\":[\"Once\",\"bytes:\\\\xc3\",\"bytes:\\\\xa4\",\" upon\"],"
      "\"token_logprobs\":[null,-1.0,-2.0,-1.5],"
      "\"top_logprobs\":[null,{\"bytes:\\\\xc3\":-1.0},{\"bytes:\\\\xa4\":-2.0},"
      "{\" upon\":-1.5,\"bytes:\\\\xf0\":-2.0,\"bytes:\\\\xf1\":-3.0}],"
      "\"text_offset\":[0,4,4,5]}");
}

TEST(AnswerBody, reasoning_and_ids_stand_in_fields_of_their_own) {
  Answer answer = answer_of("Four.");
  answer.choices[0].reasoning = "2 and 2";
  answer.choices[0].prompt_token_ids = {1, 2};
  answer.choices[0].token_ids = {3};
  Job job = job_for(Endpoint::chat);
  job.parameters.return_token_ids = true;
  const Json choice = answer_body(job, answer, "r").find("choices")->as_array()[0];
  EXPECT_EQ(
      choice.find("message")->dump(),
      R"({"role":"assistant","content":"Four.","refusal":null,"reasoning_content":"2 and 2"})");
  EXPECT_EQ(choice.find("prompt_token_ids")->dump(), "[1,2]");
  EXPECT_EQ(choice.find("token_ids")->dump(), "[3]");
  const Json plain = answer_body(job_for(Endpoint::chat), answer_of("x"), "r");
  EXPECT_EQ(plain.dump().find("token_ids"), std::string::npos);
  EXPECT_EQ(plain.dump().find("reasoning"), std::string::npos);
}

TEST(AnswerBody, completion_logprobs_name_an_unlikely_chosen_token_too) {
  Answer answer = answer_of(" b");
  AnswerLogprob chosen = logprob(" b", -7);
  chosen.top = {{" a", -0.5}};
  answer.choices[0].logprobs = {chosen};
  Json body = answer_body(job_for(Endpoint::completions, true), answer, "r");
  Json logprobs = *body.find("choices")->as_array()[0].find("logprobs");
  EXPECT_EQ(logprobs.find("top_logprobs")->dump(), "[{\" a\":-0.5,\" b\":-7.0}]");
}

TEST(AnswerBody, tokens_that_are_not_in_the_text_have_no_width) {
  Answer answer = answer_of("Hello you");
  answer.choices[0].logprobs = {
      logprob("<s>", -1), logprob(" Hello", -1), logprob(" you", -1), logprob("</s>", -1)};
  Json body = answer_body(job_for(Endpoint::completions, true), answer, "r");
  Json logprobs = *body.find("choices")->as_array()[0].find("logprobs");
  EXPECT_EQ(logprobs.find("text_offset")->dump(), "[0,0,5,9]");
}

TEST(AnswerBody, what_is_written_is_strict_json) {
  Answer answer = answer_of("\xff");
  AnswerLogprob token = logprob("\xff", std::numeric_limits<double>::quiet_NaN());
  token.top = {{"\xfe", -1}, {"\xfd", -2}, {std::string("\0", 1), -3}};
  answer.choices[0].logprobs = {token};
  for (Endpoint endpoint : {Endpoint::chat, Endpoint::completions}) {
    std::string text = answer_body(job_for(endpoint, true), answer, "r").dump();
    EXPECT_EQ(Json::parse(text).dump(), text);
  }
}

TEST(ResultLine, an_answer_stands_in_openais_line) {
  EXPECT_EQ(
      result_line(line_for(R"({"id":"x","created":5,"model":"m"})"), false),
      "{\"id\":\"batch_req_1\",\"custom_id\":\"a\\\"b\",\"response\":{\"status_code\":200,"
      "\"request_id\":\"req_1\",\"body\":{\"id\":\"x\",\"created\":5,\"model\":\"m\"}},"
      "\"error\":null,\"nightsweep\":{\"sweeps\":3}}\n");
}

TEST(ResultLine, a_stable_line_leaves_out_what_differs_between_runs) {
  EXPECT_EQ(
      result_line(line_for(R"({"id":"x","created":5,"model":"m","p":-0.1,"id2":{"id":1}})"), true),
      "{\"custom_id\":\"a\\\"b\",\"response\":{\"status_code\":200,"
      "\"body\":{\"model\":\"m\",\"p\":-0.1,\"id2\":{\"id\":1}}},\"error\":null}\n");
}

TEST(ResultLine, a_stable_line_does_not_tell_how_much_of_the_prompt_was_shared) {
  const auto line_with = [](uint64_t cached_tokens, bool is_stable) {
    Answer answer = answer_of("x");
    answer.usage.cached_tokens = cached_tokens;
    return result_line(
        line_for(answer_body(job_for(Endpoint::chat), answer, "r").dump()), is_stable);
  };
  EXPECT_NE(line_with(0, false), line_with(8, false));
  EXPECT_NE(
      line_with(8, false).find("\"prompt_tokens_details\":{\"cached_tokens\":8}"),
      std::string::npos);
  EXPECT_EQ(line_with(0, true), line_with(8, true));
  EXPECT_NE(line_with(8, true).find("\"total_tokens\":15}"), std::string::npos);
}

TEST(ResultLine, a_stable_body_keeps_its_numbers_and_order) {
  Answer answer = answer_of("x");
  AnswerLogprob token = logprob("x", -0.1234567890123456789);
  token.top = {{"x", -1.0 / 3}};
  answer.choices[0].logprobs = {token};
  Json body = answer_body(job_for(Endpoint::chat, true), answer, "r");
  std::string stable = result_line(line_for(body.dump()), true);
  body.as_object().erase(body.as_object().begin());
  body.as_object().erase(body.as_object().begin() + 1);
  for (auto& [name, value] : body.as_object()) {
    if (name == "usage") value.as_object().pop_back();  // what was shared
  }
  EXPECT_NE(stable.find("\"body\":" + body.dump() + "}"), std::string::npos) << stable;
}

TEST(ResultLine, a_refused_request_has_its_error_in_the_body) {
  ApiError error{
      .message = "expected x",
      .type = "invalid_request_error",
      .param = "temperature",
      .code = "invalid_value"};
  ResultLine line = line_for(error_body(error).dump());
  line.status_code = error.status_code;
  line.nightsweep = "";
  EXPECT_EQ(
      result_line(line, false),
      "{\"id\":\"batch_req_1\",\"custom_id\":\"a\\\"b\",\"response\":{\"status_code\":400,"
      "\"request_id\":\"req_1\",\"body\":{\"error\":{\"message\":\"expected x\","
      "\"type\":\"invalid_request_error\",\"param\":\"temperature\",\"code\":\"invalid_value\"}}},"
      "\"error\":null}\n");
  EXPECT_EQ(
      error_body(ApiError{.message = "m", .param = "", .code = ""}).dump(),
      R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})");
}

TEST(ResultLine, a_lost_request_has_its_error_at_the_top) {
  ResultLine line = line_for("");
  line.lost = LostError{.code = "batch_expired", .message = "too late"};
  EXPECT_EQ(
      result_line(line, false),
      "{\"id\":\"batch_req_1\",\"custom_id\":\"a\\\"b\",\"response\":null,"
      "\"error\":{\"code\":\"batch_expired\",\"message\":\"too late\"},"
      "\"nightsweep\":{\"sweeps\":3}}\n");
  EXPECT_EQ(
      result_line(line, true),
      "{\"custom_id\":\"a\\\"b\",\"response\":null,"
      "\"error\":{\"code\":\"batch_expired\",\"message\":\"too late\"}}\n");
}

TEST(ResultLine, timings_are_an_object_of_their_own) {
  Answer answer = answer_of("x");
  answer.timings = {
      .queued_s = 0.5,
      .prefill_s = 0.25,
      .decode_s = 1.5,
      .first_token_s = 0.75,
      .sweeps = 9,
      .attempts = 2,
      .tokens_per_s = 2.0};
  const std::string expected =
      R"({"queued_s":0.5,"prefill_s":0.25,"decode_s":1.5,"first_token_s":0.75,"sweeps":9,)"
      R"("attempts":2,"tokens_per_s":2.0,"seed":-5,)"
      R"("model_fingerprint":"0123456789abcdef0123456789abcdef")";
  EXPECT_EQ(timings_object(answer).dump(), expected + "}");
  EXPECT_EQ(
      timings_object(answer, {"user", "zzz"}).dump(), expected + R"(,"ignored":["user","zzz"]})");
}

}  // namespace
}  // namespace nightsweep
