// Fields that others drop quietly: each is honoured, or refused by name with OpenAI's error object.
#include <gtest/gtest.h>

#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

constexpr const char* kUser = R"("messages":[{"role":"user","content":"hi"}])";

class Refusals : public RunnerTest {
 protected:
  // The error of a line: of its form, or of its prompt with this model.
  static ApiError error_of(const std::string& line, const RequestMaker& maker) {
    auto parsed = parse_line(line, 1, LineOptions());
    if (auto* error = std::get_if<LineError>(&parsed)) return error->api_error();
    auto prompts = maker.prompts(std::get<Job>(parsed), 0);
    auto* error = std::get_if<ApiError>(&prompts);
    EXPECT_NE(error, nullptr) << line << " is accepted";
    return error == nullptr ? ApiError{.message = "accepted"} : *error;
  }
  ApiError error_of(const std::string& line) { return error_of(line, model().maker()); }

  ApiError error_with(const std::string& source, const std::string& line) {
    ChatTemplate chat_template = ChatTemplate::compile(source);
    return error_of(line, RequestMaker(model().tokenizer(), &chat_template, "", 256));
  }

  Job job_of(const std::string& line) {
    auto parsed = parse_line(line, 1, LineOptions());
    auto* error = std::get_if<LineError>(&parsed);
    EXPECT_EQ(error, nullptr) << error->text("line");
    return error != nullptr ? Job() : std::get<Job>(parsed);
  }

  static std::string chat(const std::string& members) {
    return "{" + std::string(kUser) + "," + members + "}";
  }

  void expect(const ApiError& error, const char* param, const char* code, const char* part) {
    EXPECT_EQ(error.status_code, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.param, param);
    EXPECT_EQ(error.code, code);
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
};

TEST_F(Refusals, an_unknown_key) {
  expect(
      error_of(chat(R"("temprature":0)")), "temprature", "unknown_parameter",
      "did you mean temperature?");
}

TEST_F(Refusals, both_spellings_of_max_tokens_with_different_values) {
  expect(
      error_of(chat(R"("max_tokens":5,"max_completion_tokens":6)")), "max_tokens", "invalid_value",
      "the same value as max_completion_tokens, 6");
  EXPECT_EQ(job_of(chat(R"("max_tokens":5,"max_completion_tokens":5)")).parameters.max_tokens, 5);
}

TEST_F(Refusals, a_stop_string_that_is_empty) {
  expect(error_of(chat(R"("stop":"")")), "stop", "invalid_value", "a string that is not empty");
  expect(
      error_of(chat(R"("stop":["x",""])")), "stop[1]", "invalid_value",
      "a string that is not empty");
}

TEST_F(Refusals, no_tokens_to_generate) {
  expect(error_of(chat(R"("max_tokens":0)")), "max_tokens", "invalid_value", "from 1");
  expect(
      error_of(R"({"prompt":"x","max_tokens":0})"), "max_tokens", "invalid_value",
      "at least 1 without echo");
  EXPECT_EQ(job_of(R"({"prompt":"x","max_tokens":0,"echo":true})").parameters.max_tokens, 0);
}

TEST_F(Refusals, choices_at_temperature_0_are_equal_and_asked_for) {
  const Job job = job_of(chat(R"("temperature":0,"n":3)"));
  auto made = model().maker().prompts(job, 0);
  const PromptTokens& prompts = std::get<PromptTokens>(made);
  EXPECT_EQ(n_choices(job, prompts), 3U);
  EXPECT_EQ(model().maker().sequence(job, prompts, 2, {}).sampling.temperature, 0);
}

TEST_F(Refusals, a_seed_beyond_64_bits) {
  for (const char* seed :
       {"9223372036854775808", "-9223372036854775809", "1e19", "18446744073709551616"}) {
    expect(
        error_of(chat(std::string("\"seed\":") + seed)), "seed", "invalid_value",
        "an integer from -2^63 to 2^63-1");
  }
  EXPECT_EQ(job_of(chat(R"("seed":9223372036854775807)")).parameters.seed, INT64_MAX);
}

TEST_F(Refusals, ids_that_the_vocabulary_lacks) {
  expect(
      error_of(chat(R"("logit_bias":{"320":1})")), "logit_bias", "invalid_value",
      "below 320, found 320");
  expect(
      error_of(chat(R"("allowed_token_ids":[320])")), "allowed_token_ids", "invalid_value",
      "below 320");
  expect(
      error_of(chat(R"("stop_token_ids":[320])")), "stop_token_ids", "invalid_value", "below 320");
  expect(error_of(R"({"prompt":[5,320]})"), "prompt", "invalid_value", "below 320");
}

TEST_F(Refusals, images_and_other_parts) {
  for (const char* part :
       {R"({"type":"image_url","image_url":{"url":"x"}})",
        R"({"type":"input_audio","input_audio":{}})", R"({"type":"file","file":{}})"}) {
    expect(
        error_of(
            R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)" +
            std::string(part) + "]}]}"),
        "messages[0].content[1].type", "unsupported_value", "images, audio and files");
  }
}

TEST_F(Refusals, a_stream) {
  expect(error_of(chat(R"("stream":true)")), "stream", "unsupported_value", "never streamed");
  EXPECT_EQ(job_of(chat(R"("stream":false)")).parameters, Parameters());
}

TEST_F(Refusals, a_model_that_is_not_known) {
  SubmissionOptions options;
  options.needs_models = true;
  options.keep_going = true;
  const Submission made = submit_text("{\"prompt\":\"1\",\"model\":\"gpt-9\"}\n", options);
  const auto stored = results(made.batch);
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0].result.status_code, 404);
  const Json body = Json::parse(stored[0].result.body);
  EXPECT_EQ(body.find("error")->find("code")->as_string(), "model_not_found");
  EXPECT_EQ(body.find("error")->find("param")->as_string(), "model");
  EXPECT_NE(body.find("error")->find("message")->as_string().find("'gpt-9'"), std::string::npos);
}

TEST_F(Refusals, a_prompt_longer_than_the_context_says_how_long_and_how_much_fits) {
  const std::string ids = [] {
    std::string list = "5";
    for (int i = 1; i < 300; ++i)
      list += ",5";
    return list;
  }();
  expect(
      error_of("{\"prompt\":[" + ids + "]}"), "prompt", "context_length_exceeded",
      "fewer than 256 tokens (the context), found 300");
  // Cut where the request asks for it.
  auto made = model().maker().prompts(
      job_of("{\"truncate_prompt_tokens\":-1,\"prompt\":[" + ids + "]}"), 0);
  EXPECT_EQ(std::get<PromptTokens>(made).at(0).size(), 255U);
  made = model().maker().prompts(job_of("{\"truncate_prompt_tokens\":2,\"prompt\":[5,6,7]}"), 0);
  EXPECT_EQ(std::get<PromptTokens>(made).at(0), (TokenIds{6, 7}));
}

TEST_F(Refusals, messages_that_are_empty) {
  expect(error_of(R"({"messages":[]})"), "messages", "invalid_value", "at least one message");
  expect(
      error_of(R"({"messages":[{"role":"user"}]})"), "messages[0].content",
      "missing_required_parameter", "found nothing");
}

TEST_F(Refusals, a_role_that_the_template_refuses) {
  expect(
      error_with(
          "{% for m in messages %}{% if m.role == 'system' %}"
          "{{ raise_exception('System role not supported') }}{% endif %}{% endfor %}x",
          R"({"messages":[{"role":"system","content":"be brief"}]})"),
      "messages", "invalid_value", "System role not supported");
  expect(
      error_of(R"({"messages":[{"role":"robot","content":"x"}]})"), "messages[0].role",
      "invalid_value", "system, developer, user, assistant or tool");
}

TEST_F(Refusals, messages_that_render_to_nothing) {
  expect(
      error_with("{% if false %}{{ messages }}{% endif %}", chat(R"("n":1)")), "messages",
      "invalid_value", "renders to nothing");
}

TEST_F(Refusals, fields_for_a_template_that_does_not_know_them) {
  const char* tools =
      R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")";
  for (const auto& [members, param] :
       {std::pair(tools, "tools"), std::pair(R"("documents":[{"text":"d"}])", "documents"),
        std::pair(R"("reasoning_effort":"low")", "reasoning_effort"),
        std::pair(R"("verbosity":"low")", "verbosity"),
        std::pair(R"("separate_reasoning":true)", "separate_reasoning")}) {
    expect(error_of(chat(members)), param, "unsupported_parameter", "does not know it");
  }
  ChatTemplate knows = ChatTemplate::compile(
      "{{ tools[0].function.name }} {{ reasoning_effort }} {{ documents }}{{ verbosity }}");
  const RequestMaker maker(model().tokenizer(), &knows, "", 256);
  auto made = maker.prompts(job_of(chat(std::string(tools) + R"(,"reasoning_effort":"low")")), 0);
  ASSERT_TRUE(std::holds_alternative<PromptTokens>(made));
  EXPECT_EQ(model().tokenizer().decode(std::get<PromptTokens>(made).at(0), true), " f low None");
}

TEST_F(Refusals, bad_words_are_barred_with_and_without_a_space_in_front) {
  const Job job = job_of(R"({"prompt":"x","bad_words":["  a"]})");
  auto made = model().maker().prompts(job, 0);
  const SequenceRequest request =
      model().maker().sequence(job, std::get<PromptTokens>(made), 0, {});
  ASSERT_FALSE(request.bad_words.empty());
  EXPECT_EQ(request.bad_words[0], model().tokenizer().encode("a", false, false));
}

// What `choices` makes of an answer's text behind a prompt.
Choice choice_of(const PromptModel& model, const std::string& prompt, const std::string& answer) {
  Job job;
  job.endpoint = Endpoint::chat;
  job.separate_reasoning = true;
  const PromptTokens prompts = {model.tokenizer().encode(prompt, true, false)};
  SequenceResult result;
  result.reason = FinishReason::stop;
  result.text = answer;
  return model.maker().choices(job, prompts, std::span(&result, 1)).at(0);
}

TEST_F(Refusals, reasoning_is_split_off_where_it_is_asked_for) {
  Choice choice = choice_of(model(), "x", "<think>\nsix\n</think>\n\nSix.");
  EXPECT_EQ(choice.reasoning, "six");
  EXPECT_EQ(choice.text, "Six.");
  choice = choice_of(model(), "x<think>\n", "so\n</think>Six.");
  EXPECT_EQ(choice.reasoning, "so");
  EXPECT_EQ(choice.text, "Six.");
  choice = choice_of(model(), "x<think>\n", "never ends");
  EXPECT_EQ(choice.reasoning, "never ends");
  EXPECT_EQ(choice.text, "");
  choice = choice_of(model(), "x", "Six, </think> and no more.");
  EXPECT_EQ(choice.reasoning, std::nullopt);
  EXPECT_EQ(choice.text, "Six, </think> and no more.");
}

}  // namespace
}  // namespace nightsweep
