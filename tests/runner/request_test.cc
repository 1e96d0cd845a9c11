#include "runner/request.h"

#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

class Requests : public RunnerTest {
 protected:
  static Job chat(const std::string& text) {
    Job job;
    job.endpoint = Endpoint::chat;
    job.add_special_tokens = false;
    Json message = Json::Object{};
    message.set("role", "user");
    message.set("content", text);
    job.messages = Json::Array{message};
    return job;
  }

  TokenIds tokens(const Job& job) {
    auto made = model().maker().prompts(job, 0);
    const auto* error = std::get_if<ApiError>(&made);
    EXPECT_EQ(error, nullptr) << (error != nullptr ? error->message : "");
    return error != nullptr ? TokenIds{} : std::get<PromptTokens>(made).at(0);
  }

  ApiError error_of(const Job& job) {
    auto made = model().maker().prompts(job, 0);
    const auto* error = std::get_if<ApiError>(&made);
    EXPECT_NE(error, nullptr);
    return error != nullptr ? *error : ApiError{};
  }
};

TEST_F(Requests, a_chat_has_bos_once_and_the_text_of_the_template) {
  TokenIds ids = tokens(chat("hi"));
  auto bos = static_cast<uint32_t>(model().tokenizer().bos());
  EXPECT_EQ(ids.front(), bos);
  EXPECT_NE(ids.at(1), bos);
  EXPECT_NE(
      model().tokenizer().decode(ids, true).find("<user>hi</user><assistant>"), std::string::npos);
}

TEST_F(Requests, control_tokens_in_a_message_stay_text) {
  TokenIds ids = tokens(chat("</s>"));
  auto eos = static_cast<uint32_t>(model().tokenizer().eos());
  EXPECT_EQ(std::count(ids.begin(), ids.end(), eos), 0);
}

TEST_F(Requests, a_final_message_is_continued_where_its_text_ends) {
  Job job = chat("Once upon");
  job.continue_final_message = true;
  std::string text = model().tokenizer().decode(tokens(job), true);
  EXPECT_TRUE(text.ends_with("<user>Once upon")) << text;
}

TEST(CutAfterMessage, looks_only_into_what_came_from_the_messages) {
  std::vector<TextSpan> spans = {
      {.text = "<user>", .parse_special = true},
      {.text = "e", .parse_special = false},
      {.text = "</user>end", .parse_special = true}};
  ASSERT_TRUE(cut_after_message(spans, " e "));
  EXPECT_EQ(joined(spans), "<user>e");
  EXPECT_FALSE(cut_after_message(spans, "absent"));
  EXPECT_FALSE(cut_after_message(spans, "  "));
}

TEST_F(Requests, what_the_model_cannot_take_is_refused_by_field) {
  Job job;
  job.endpoint = Endpoint::completions;
  job.prompts = {std::string(400, 'x')};
  EXPECT_EQ(error_of(job).code, "context_length_exceeded");
  job.prompts = {TokenIds{5, 320}};
  EXPECT_EQ(error_of(job).param, "prompt");
  job.prompts = {TokenIds{}};
  EXPECT_EQ(error_of(job).param, "prompt");
  job.prompts = {TokenIds{5}};
  job.parameters.stop_token_ids = {320};
  EXPECT_EQ(error_of(job).param, "stop_token_ids");
  job.parameters.stop_token_ids = {};
  job.parameters.logit_bias = {{400, 1.0}};
  EXPECT_EQ(error_of(job).param, "logit_bias");
  Job reserved = chat("x");
  reserved.chat_template_kwargs = Json::Object{{"messages", Json(1)}};
  EXPECT_EQ(error_of(reserved).param, "chat_template_kwargs");
}

TEST_F(Requests, a_model_without_a_template_refuses_chats_by_name) {
  RequestMaker maker(model().tokenizer(), nullptr, "tiny.gguf has no chat template", 256);
  auto made = maker.prompts(chat("hi"), 0);
  ASSERT_TRUE(std::holds_alternative<ApiError>(made));
  EXPECT_NE(std::get<ApiError>(made).message.find("/v1/completions"), std::string::npos);
}

TEST_F(Requests, choices_share_prompts_and_differ_in_their_key) {
  Job job;
  job.endpoint = Endpoint::completions;
  job.prompts = {TokenIds{5}, TokenIds{6}};
  job.parameters.n = 2;
  job.parameters.max_tokens = 1000;
  PromptTokens prompts = {{5}, {6}};
  EXPECT_EQ(n_choices(job, prompts), 4U);
  SequenceRequest last = model().maker().sequence(job, prompts, 3, {9});
  EXPECT_EQ(last.prompt, TokenIds{6});
  EXPECT_EQ(last.sampling.choice, 3U);
  EXPECT_EQ(last.resumed, TokenIds{9});
  EXPECT_EQ(last.max_tokens, 255U) << "no more than the context has room for";
}

}  // namespace
}  // namespace nightsweep
