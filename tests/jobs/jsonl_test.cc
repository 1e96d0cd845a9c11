#include "jobs/jsonl.h"

#include <gtest/gtest.h>

#include "support/lines.h"

namespace nightsweep {
namespace {

constexpr const char* kHi = R"([{"role":"user","content":"hi"}])";

TEST(Jsonl, an_openai_line_is_a_job) {
  Job job =
      job_of(R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions",)"
             R"("body":{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5}})");
  EXPECT_EQ(job.custom_id, "a");
  EXPECT_EQ(job.line, 7u);
  EXPECT_EQ(job.endpoint, Endpoint::chat);
  EXPECT_EQ(job.model, "m");
  EXPECT_EQ(job.messages.dump(), kHi);
  EXPECT_EQ(job.parameters.max_tokens, 5);
}

TEST(Jsonl, both_endpoints_are_known_in_both_spellings) {
  for (const char* url : {"/v1/chat/completions", "/chat/completions"}) {
    Job job = job_of(
        std::string(R"({"custom_id":"a","method":"POST","url":")") + url +
        R"(","body":{"messages":)" + kHi + "}}");
    EXPECT_EQ(job.endpoint, Endpoint::chat) << url;
  }
  for (const char* url : {"/v1/completions", "/completions"}) {
    Job job = job_of(
        std::string(R"({"custom_id":"a","method":"POST","url":")") + url +
        R"(","body":{"prompt":"x"}})");
    EXPECT_EQ(job.endpoint, Endpoint::completions) << url;
  }
}

TEST(Jsonl, a_mistral_line_has_the_endpoint_of_its_body) {
  Job chat = job_of(std::string(R"({"custom_id":"0","body":{"messages":)") + kHi + "}}");
  EXPECT_EQ(chat.endpoint, Endpoint::chat);
  EXPECT_EQ(chat.custom_id, "0");
  Job completion = job_of(R"({"custom_id":"1","body":{"prompt":"x"}})");
  EXPECT_EQ(completion.endpoint, Endpoint::completions);
  EXPECT_EQ(
      job_of(R"({"custom_id":"1","method":null,"url":null,"body":{"prompt":"x"}})").endpoint,
      Endpoint::completions);
}

TEST(Jsonl, a_plain_line_has_parameters_beside_its_text) {
  Job job = job_of(R"({"id":"p","prompt":"Once","temperature":0,"model":"m"})");
  EXPECT_EQ(job.custom_id, "p");
  EXPECT_EQ(job.endpoint, Endpoint::completions);
  EXPECT_EQ(std::get<std::string>(job.prompts.at(0)), "Once");
  EXPECT_EQ(job.parameters.temperature, 0);
  EXPECT_EQ(job.model, "m");
  EXPECT_EQ(job_of(R"({"custom_id":"q","prompt":"Once"})").custom_id, "q");
}

TEST(Jsonl, a_line_without_an_id_gets_its_number) {
  EXPECT_EQ(job_of(R"({"prompt":"x"})").custom_id, "line-7");
  EXPECT_EQ(job_of(R"({"prompt":"x","id":null})").custom_id, "line-7");
  EXPECT_EQ(job_of(R"({"custom_id":null,"body":{"prompt":"x"}})").custom_id, "line-7");
}

TEST(Jsonl, an_id_that_is_no_string_is_refused) {
  EXPECT_EQ(
      refusal_of(R"({"custom_id":12,"body":{"prompt":"x"}})"),
      "custom_id: expected a string, found the number 12");
  EXPECT_EQ(
      refusal_of(R"({"id":1.0,"prompt":"x"})"), "id: expected a string, found the number 1.0");
  EXPECT_EQ(error_of(R"({"id":["a"],"prompt":"x"})").custom_id, "line-7");
  EXPECT_EQ(
      refusal_of(R"({"id":"a","custom_id":"b","prompt":"x"})"),
      "id: expected either custom_id or id, found both");
}

TEST(Jsonl, a_refusal_carries_the_id_of_its_line) {
  EXPECT_EQ(error_of(R"({"custom_id":"z","body":{"prompt":3}})").custom_id, "z");
  EXPECT_EQ(error_of(R"({"custom_id":"z","body":{"prompt":"x"},"bad":1})").custom_id, "z");
  EXPECT_EQ(error_of("{").custom_id, "line-7");
}

TEST(Jsonl, method_and_url_are_checked) {
  EXPECT_EQ(
      refusal_of(
          R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{"prompt":"x"}})"),
      "method: expected \"POST\", found \"GET\"");
  LineError url =
      error_of(R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"input":"x"}})");
  EXPECT_EQ(url.field, "url");
  EXPECT_EQ(url.code, "unsupported_value");
  EXPECT_NE(url.message.find("found \"/v1/embeddings\""), std::string::npos);
  EXPECT_EQ(
      refusal_of(R"({"custom_id":"a","method":"POST","url":7,"body":{"prompt":"x"}})"),
      "url: expected a string, found the number 7");
}

TEST(Jsonl, the_url_and_the_body_must_agree) {
  EXPECT_EQ(
      refusal_of(
          R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"prompt":"x"}})"),
      "body.messages: expected messages for /v1/chat/completions, found prompt");
  EXPECT_EQ(
      refusal_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{}})"),
      "body.prompt: expected prompt for /v1/completions, found nothing");
  EXPECT_EQ(
      refusal_of(R"({"prompt":"x","messages":[]})"),
      "prompt: expected either messages or prompt, found both");
  EXPECT_EQ(
      refusal_of(R"({"body":{"model":"m"}})"),
      "body: expected messages (a chat) or prompt (a completion), found neither");
  EXPECT_EQ(
      refusal_of(R"({"hello":1})"),
      "expected body, messages (a chat) or prompt (a completion), found neither");
}

TEST(Jsonl, the_endpoint_option_is_for_lines_without_url) {
  LineOptions options;
  options.endpoint = Endpoint::chat;
  EXPECT_EQ(
      job_of(R"({"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})", options)
          .endpoint,
      Endpoint::completions);
  EXPECT_EQ(
      refusal_of(R"({"body":{"prompt":"x"}})", options),
      "body.messages: expected messages for /v1/chat/completions, found prompt");
}

TEST(Jsonl, unknown_members_of_a_line_with_a_body_are_refused_by_name) {
  LineError error = error_of(R"({"custom_id":"a","body":{"prompt":"x"},"metadata":{}})");
  EXPECT_EQ(error.field, "metadata");
  EXPECT_EQ(error.code, "unknown_parameter");
  LineOptions lenient;
  lenient.lenient = true;
  EXPECT_EQ(
      job_of(R"({"custom_id":"a","body":{"prompt":"x"},"metadata":{}})", lenient).ignored,
      std::vector<std::string>{"metadata"});
  EXPECT_EQ(
      refusal_of(R"({"method":"POST","prompt":"x"})"),
      "prompt: expected custom_id, method, url and body, found \"prompt\" (a parameter belongs "
      "into "
      "body)");
}

TEST(Jsonl, a_line_must_be_an_object) {
  EXPECT_EQ(refusal_of("[1]"), "expected a JSON object, found an array");
  EXPECT_EQ(refusal_of("null"), "expected a JSON object, found null");
  EXPECT_EQ(refusal_of("\"x\""), "expected a JSON object, found \"x\"");
  EXPECT_EQ(error_of("3").code, "invalid_json");
  EXPECT_EQ(refusal_of(R"({"body":[]})"), "body: expected an object, found an array");
}

TEST(Jsonl, a_refusal_names_file_line_and_field) {
  auto parsed = parse_line(R"({"body":{"prompt":"x","temperature":3}})", 12, {});
  EXPECT_EQ(
      std::get<LineError>(parsed).text("work/in.jsonl"),
      "work/in.jsonl:12: body.temperature: expected a number from 0 to 2, found the number 3");
  EXPECT_EQ(
      error_of("{").text("x").substr(0, 46), "x:7: expected a JSON object, found an error at");
}

TEST(Jsonl, a_refusal_is_an_api_error_that_names_the_parameter) {
  ApiError error = error_of(R"({"body":{"prompt":"x","temperature":3}})").api_error();
  EXPECT_EQ(error.status_code, 400);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.param, "temperature");
  EXPECT_EQ(error.code, "invalid_value");
  EXPECT_EQ(error.message, "temperature: expected a number from 0 to 2, found the number 3");
  EXPECT_EQ(error_of(R"({"prompt":"x","temperature":3})").api_error().param, "temperature");
  EXPECT_EQ(error_of("{").api_error().param, "");
}

// The hygiene of files: what is not strict JSON is refused, with the reason.

TEST(JsonlHygiene, raw_control_characters_are_refused) {
  EXPECT_EQ(
      refusal_of(std::string_view("{\"prompt\":\"a\0b\"}", 16)),
      "expected a JSON object, found an error at byte 13: a raw NUL byte is not JSON (write "
      "\\u0000 in "
      "a string)");
  // Behind the value too, where a parser may take it for the end.
  EXPECT_NE(
      refusal_of(std::string_view("{\"prompt\":\"a\"}\0{}", 17)).find("raw NUL"),
      std::string::npos);
  EXPECT_EQ(error_of("{\"prompt\":\"a\tb\"}").code, "invalid_json");
  EXPECT_EQ(error_of("{\"prompt\":\"a\x1f\"}").code, "invalid_json");
}

TEST(JsonlHygiene, an_escaped_nul_is_text) {
  Job job = job_of(R"({"prompt":"a\u0000b"})");
  EXPECT_EQ(std::get<std::string>(job.prompts.at(0)), std::string("a\0b", 3));
}

TEST(JsonlHygiene, a_byte_order_mark_inside_of_the_file_is_refused) {
  EXPECT_NE(
      refusal_of("\xEF\xBB\xBF{\"prompt\":\"a\"}").find("byte order mark"), std::string::npos);
}

TEST(JsonlHygiene, what_is_not_unicode_is_refused) {
  for (const char* text :
       {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\\ud800", "\\udc00",
        "\\ud800x", "\\ud83dx\\ude00"}) {
    std::string line = std::string("{\"prompt\":\"") + text + "\"}";
    EXPECT_EQ(error_of(line).code, "invalid_json") << line;
  }
  Job job = job_of(R"({"prompt":"\ud83d\ude00"})");
  EXPECT_EQ(std::get<std::string>(job.prompts.at(0)), "\xF0\x9F\x98\x80");
}

TEST(JsonlHygiene, integers_may_be_written_as_doubles) {
  EXPECT_EQ(job_of(completion_line(R"("max_tokens":1.0)")).parameters.max_tokens, 1);
  EXPECT_EQ(job_of(completion_line(R"("max_tokens":1e3)")).parameters.max_tokens, 1000);
  EXPECT_EQ(job_of(completion_line(R"("seed":-2.50e1)")).parameters.seed, -25);
  EXPECT_EQ(
      refusal_of(completion_line(R"("max_tokens":1.5)")),
      "max_tokens: expected an integer from 0 to 2147483647, found the number 1.5");
}

TEST(JsonlHygiene, numbers_that_are_no_json_are_refused) {
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e400", "-1e400", "01", "+1", ".5"}) {
    EXPECT_EQ(
        error_of(completion_line(std::string("\"temperature\":") + number)).code, "invalid_json")
        << number;
  }
}

TEST(JsonlHygiene, a_repeated_key_is_refused_at_any_depth) {
  for (const char* line :
       {R"({"prompt":"a","prompt":"b"})",
        R"({"custom_id":"a","custom_id":"a","body":{"prompt":"x"}})",
        R"({"body":{"prompt":"x","seed":1,"seed":2}})",
        R"({"messages":[{"role":"user","content":"a","content":"b"}]})",
        R"({"prompt":"a","\u0070rompt":"b"})"}) {
    EXPECT_NE(refusal_of(line).find("stands twice"), std::string::npos) << line;
  }
}

TEST(JsonlHygiene, deep_nesting_is_an_error_and_not_a_crash) {
  std::string deep = R"({"prompt":)" + std::string(1000000, '[');
  EXPECT_NE(refusal_of(deep).find("nested deeper"), std::string::npos);
  std::string objects = R"({"prompt":)";
  for (int i = 0; i < 100000; ++i)
    objects += "{\"a\":";
  EXPECT_NE(refusal_of(objects).find("nested deeper"), std::string::npos);
}

TEST(JsonlHygiene, damage_behind_a_long_text_is_told_in_short) {
  std::string line = "{\"prompt\":\"" + std::string(1000000, 'x') + "\xff\"}";
  std::string refusal = refusal_of(line);
  EXPECT_LT(refusal.size(), 400u);
  EXPECT_NE(refusal.find("at byte 1000012"), std::string::npos) << refusal;
  std::string key = "{\"prompt\":\"x\",\"" + std::string(1000000, 'k') + "\":1}";
  EXPECT_LT(refusal_of(key).size(), 400u);
  std::string twice =
      "{\"" + std::string(100000, 'k') + "\":1,\"" + std::string(100000, 'k') + "\":1}";
  EXPECT_LT(refusal_of(twice).size(), 400u);
}

TEST(JsonlHygiene, a_refusal_is_one_line) {
  EXPECT_EQ(refusal_of("{\"prompt\":\"x\",\"a\\nb\":1}").find('\n'), std::string::npos);
  EXPECT_EQ(refusal_of("{\"prompt\":\"x\",\"stop\":[\"\\n\",7]}").find('\n'), std::string::npos);
  EXPECT_EQ(
      refusal_of("{\"prompt\":\"x\",\"tool_choice\":\"\\n\\u001b[2J\"}").find('\x1b'),
      std::string::npos);
}

TEST(JsonlHygiene, what_follows_the_object_is_refused) {
  EXPECT_EQ(error_of(R"({"prompt":"a"}{"prompt":"b"})").code, "invalid_json");
  EXPECT_EQ(error_of("{\"prompt\":\"a\"}\r{\"prompt\":\"b\"}").code, "invalid_json");
  EXPECT_EQ(error_of(R"({"prompt":"a"} // note)").code, "invalid_json");
  EXPECT_EQ(error_of(R"({"prompt":"a"},)").code, "invalid_json");
}

TEST(JsonlHygiene, a_line_too_long_says_what_to_do) {
  LineError error = line_too_long(3, 16 << 20);
  EXPECT_EQ(
      error.text("f"),
      "f:3: expected a line of at most 16777216 bytes, found a longer one (raise --max-line)");
  EXPECT_EQ(error.custom_id, "line-3");
}

// --set

LineOptions with_set(const char* key, const char* value) {
  LineOptions options;
  options.defaults.emplace_back(key, Json::parse(value));
  return options;
}

TEST(JsonlSet, a_default_is_for_lines_that_do_not_set_the_key) {
  LineOptions options = with_set("temperature", "0.5");
  EXPECT_EQ(job_of(chat_line(""), options).parameters.temperature, 0.5);
  EXPECT_EQ(job_of(chat_line(R"("temperature":null)"), options).parameters.temperature, 0.5);
  EXPECT_EQ(job_of(chat_line(R"("temperature":1.5)"), options).parameters.temperature, 1.5);
  EXPECT_EQ(job_of(R"({"body":{"prompt":"x"}})", options).parameters.temperature, 0.5);
}

TEST(JsonlSet, the_last_of_equal_defaults_wins) {
  LineOptions options = with_set("top_k", "5");
  options.defaults.emplace_back("top_k", Json(9));
  EXPECT_EQ(job_of(chat_line(""), options).parameters.top_k, 9);
}

TEST(JsonlSet, a_default_yields_to_the_other_spelling_of_max_tokens) {
  LineOptions options = with_set("max_tokens", "100");
  EXPECT_EQ(job_of(chat_line(R"("max_completion_tokens":5)"), options).parameters.max_tokens, 5);
}

TEST(JsonlSet, a_wrong_default_is_named) {
  LineError range = error_of(R"({"body":{"prompt":"x"}})", with_set("temperature", "3"));
  EXPECT_EQ(
      range.text("f"), "f:7: --set temperature: expected a number from 0 to 2, found the number 3");
  EXPECT_EQ(range.api_error().param, "temperature");
  EXPECT_EQ(error_of(chat_line(""), with_set("tempature", "1")).code, "unknown_parameter");
  EXPECT_EQ(error_of(chat_line(""), with_set("stream", "true")).field, "--set stream");
  EXPECT_EQ(error_of(chat_line(""), with_set("prompt", "\"x\"")).field, "--set prompt");
  EXPECT_EQ(error_of(chat_line(""), with_set("echo", "true")).code, "unsupported_parameter");
}

TEST(Jsonl, a_seed_is_drawn_only_where_the_line_has_none) {
  LineOptions options;
  int n_drawn = 0;
  options.draw_seed = [&] {
    ++n_drawn;
    return int64_t{-77};
  };
  EXPECT_EQ(job_of(chat_line(""), options).parameters.seed, -77);
  EXPECT_EQ(job_of(chat_line(R"("seed":5)"), options).parameters.seed, 5);
  error_of(chat_line(R"("n":0)"), options);
  EXPECT_EQ(n_drawn, 1);
}

}  // namespace
}  // namespace nightsweep
