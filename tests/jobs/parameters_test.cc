// The parameter table, row by row.
#include "jobs/parameters.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/format.h"
#include "support/lines.h"

namespace nightsweep {
namespace {

std::string member(std::string_view key, std::string_view value) {
  return format("\"{}\":{}", key, value);
}

Job job_with(std::string_view key, std::string_view value) {
  return job_of(chat_line(member(key, value)));
}

Parameters parameters_with(std::string_view key, std::string_view value) {
  return job_with(key, value).parameters;
}

std::string refusal_with(std::string_view key, std::string_view value) {
  return refusal_of(chat_line(member(key, value)));
}

TEST(Parameters, defaults_are_those_of_the_api) {
  Job chat = job_of(chat_line(""));
  EXPECT_EQ(chat.parameters, Parameters());
  EXPECT_TRUE(chat.add_generation_prompt);
  EXPECT_FALSE(chat.add_special_tokens) << "a template writes its own";
  Job completion = job_of(completion_line(""));
  Parameters expected;
  expected.max_tokens = 16;
  EXPECT_EQ(completion.parameters, expected);
  EXPECT_TRUE(completion.add_special_tokens);
}

struct NumberRow {
  const char* key;
  double Parameters::*member;
  std::vector<const char*> good;
  std::vector<const char*> bad;
  const char* range;
};

TEST(Parameters, numbers_land_and_keep_their_range) {
  const NumberRow rows[] = {
      {"temperature",
       &Parameters::temperature,
       {"0", "0.7", "2", "2.0"},
       {"-0.1", "2.01", "1e300"},
       "a number from 0 to 2"},
      {"top_p",
       &Parameters::top_p,
       {"1e-9", "0.5", "1"},
       {"0", "0.0", "-0.5", "1.01"},
       "a number above 0 and at most 1"},
      {"min_p", &Parameters::min_p, {"0", "0.05", "1"}, {"-0.01", "1.01"}, "a number from 0 to 1"},
      {"repetition_penalty",
       &Parameters::repetition_penalty,
       {"0.01", "1.1", "100"},
       {"0", "-1"},
       "a number above 0"},
      {"frequency_penalty",
       &Parameters::frequency_penalty,
       {"-2", "0.5", "2"},
       {"-2.01", "2.01"},
       "a number from -2 to 2"},
      {"presence_penalty",
       &Parameters::presence_penalty,
       {"-2", "0.5", "2"},
       {"-2.01", "2.01"},
       "a number from -2 to 2"},
  };
  for (const NumberRow& row : rows) {
    for (const char* value : row.good) {
      EXPECT_EQ(parameters_with(row.key, value).*row.member, std::stod(value)) << row.key << value;
      Job job = job_of(completion_line(member(row.key, value)));
      EXPECT_EQ(job.parameters.*row.member, std::stod(value)) << row.key;
    }
    for (const char* value : row.bad) {
      LineError error = error_of(chat_line(member(row.key, value)));
      EXPECT_EQ(error.field, row.key);
      EXPECT_EQ(error.code, "invalid_value") << row.key << value;
      EXPECT_EQ(error.message.find(format("expected {}, found the number ", row.range)), 0u)
          << error.message;
    }
    for (const char* value : {"\"1\"", "true", "[1]", "{}"}) {
      EXPECT_EQ(error_of(chat_line(member(row.key, value))).code, "invalid_type")
          << row.key << value;
    }
    EXPECT_EQ(parameters_with(row.key, "null"), Parameters()) << row.key;
  }
}

TEST(Parameters, minus_zero_is_zero) {
  EXPECT_FALSE(std::signbit(parameters_with("temperature", "-0.0").temperature));
}

struct IntegerRow {
  const char* key;
  int64_t Parameters::*member;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(Parameters, integers_land_and_keep_their_range) {
  const IntegerRow rows[] = {
      {"n", &Parameters::n, {"1", "128", "2.0", "1e2"}, {"0", "-1", "129", "1.5"}},
      {"top_k", &Parameters::top_k, {"0", "1", "1000000"}, {"-2", "0.5"}},
      {"min_tokens", &Parameters::min_tokens, {"0", "12"}, {"-1", "2147483648"}},
      {"seed",
       &Parameters::seed,
       {"0", "-1", "9223372036854775807", "-9223372036854775808", "1e18"},
       {"9223372036854775808", "-9223372036854775809", "1e19", "0.5"}},
  };
  for (const IntegerRow& row : rows) {
    for (const char* value : row.good) {
      int64_t expected = 0;
      ASSERT_TRUE(Json::parse(value).to_integer(expected));
      EXPECT_EQ(parameters_with(row.key, value).*row.member, expected) << row.key << value;
    }
    for (const char* value : row.bad) {
      LineError error = error_of(chat_line(member(row.key, value)));
      EXPECT_EQ(error.field, row.key);
      EXPECT_EQ(error.code, "invalid_value") << row.key << value;
    }
    for (const char* value : {"\"1\"", "true", "[1]", "{}"}) {
      EXPECT_EQ(error_of(chat_line(member(row.key, value))).code, "invalid_type")
          << row.key << value;
    }
  }
  EXPECT_EQ(parameters_with("top_k", "-1").top_k, 0);
  EXPECT_EQ(
      refusal_with("seed", "1e19"),
      "seed: expected an integer from -2^63 to 2^63-1, found the number 1e+19");
}

TEST(Parameters, switches_land) {
  const std::pair<const char*, bool Parameters::*> rows[] = {
      {"ignore_eos", &Parameters::ignore_eos},
      {"include_stop_str_in_output", &Parameters::include_stop_str_in_output},
      {"skip_special_tokens", &Parameters::skip_special_tokens},
      {"logprobs", &Parameters::logprobs},
  };
  for (const auto& [key, field] : rows) {
    EXPECT_TRUE(parameters_with(key, "true").*field) << key;
    EXPECT_FALSE(parameters_with(key, "false").*field) << key;
    EXPECT_EQ(
        refusal_with(key, "1"), format("{}: expected true or false, found the number 1", key));
  }
}

TEST(Parameters, max_tokens_has_two_spellings_in_a_chat) {
  EXPECT_EQ(parameters_with("max_tokens", "5").max_tokens, 5);
  EXPECT_EQ(parameters_with("max_completion_tokens", "5").max_tokens, 5);
  EXPECT_EQ(
      job_of(chat_line(R"("max_tokens":5,"max_completion_tokens":5)")).parameters.max_tokens, 5);
  EXPECT_EQ(
      refusal_of(chat_line(R"("max_tokens":6,"max_completion_tokens":5)")),
      "max_tokens: expected the same value as max_completion_tokens, 5, or only one of both, "
      "found the number 6");
  EXPECT_EQ(parameters_with("max_tokens", "null").max_tokens, std::nullopt);
  EXPECT_EQ(error_of(chat_line(R"("max_tokens":0)")).code, "invalid_value");
  EXPECT_EQ(
      error_of(completion_line(R"("max_completion_tokens":5)")).code, "unsupported_parameter");
}

TEST(Parameters, zero_tokens_are_for_echo) {
  EXPECT_EQ(
      refusal_of(completion_line(R"("max_tokens":0)")),
      "max_tokens: expected at least 1 without echo, found the number 0");
  Job scoring = job_of(completion_line(R"("max_tokens":0,"echo":true,"logprobs":0)"));
  EXPECT_EQ(scoring.parameters.max_tokens, 0);
  EXPECT_TRUE(scoring.parameters.echo);
  EXPECT_TRUE(scoring.parameters.logprobs);
}

TEST(Parameters, min_tokens_stay_within_max_tokens) {
  EXPECT_EQ(job_of(chat_line(R"("min_tokens":5,"max_tokens":5)")).parameters.min_tokens, 5);
  EXPECT_EQ(
      refusal_of(R"({"body":{"prompt":"x","min_tokens":17}})"),
      "body.min_tokens: expected at most max_tokens, 16, found the number 17");
}

TEST(Parameters, stop_is_a_string_or_a_list) {
  EXPECT_EQ(parameters_with("stop", R"("a,b")").stop, std::vector<std::string>{"a,b"});
  EXPECT_EQ(parameters_with("stop", R"(["a","\n"])").stop, (std::vector<std::string>{"a", "\n"}));
  EXPECT_TRUE(parameters_with("stop", "[]").stop.empty());
  EXPECT_EQ(refusal_with("stop", R"("")"), "stop: expected a string that is not empty, found \"\"");
  EXPECT_EQ(
      refusal_with("stop", R"(["a",""])"),
      "stop[1]: expected a string that is not empty, found \"\"");
  EXPECT_EQ(refusal_with("stop", "[null]"), "stop[0]: expected a string, found null");
  EXPECT_EQ(error_of(chat_line(R"("stop":3)")).code, "invalid_type");
  auto list = [](int count) {
    Json::Array strings(static_cast<size_t>(count), Json("x"));
    return Json(strings).dump();
  };
  EXPECT_EQ(parameters_with("stop", list(16)).stop.size(), 16u);
  EXPECT_EQ(
      refusal_with("stop", list(17)),
      "stop: expected a string or a list of up to 16 strings, found 17 of them");
}

TEST(Parameters, stop_token_ids_are_ids) {
  EXPECT_EQ(
      parameters_with("stop_token_ids", "[0,5.0,4294967295]").stop_token_ids,
      (std::vector<int64_t>{0, 5, 4294967295}));
  EXPECT_EQ(error_of(chat_line(R"("stop_token_ids":[-1])")).field, "stop_token_ids[0]");
  EXPECT_EQ(error_of(chat_line(R"("stop_token_ids":[4294967296])")).code, "invalid_value");
  EXPECT_EQ(error_of(chat_line(R"("stop_token_ids":5)")).code, "invalid_type");
}

TEST(Parameters, logit_bias_maps_ids) {
  using Bias = std::vector<std::pair<uint32_t, double>>;
  EXPECT_EQ(
      parameters_with("logit_bias", R"({"50256":-100,"0":0.5,"4294967295":100})").logit_bias,
      (Bias{{0, 0.5}, {50256, -100}, {4294967295, 100}}));
  EXPECT_TRUE(parameters_with("logit_bias", "{}").logit_bias.empty());
  for (const char* key : {"", "x", "-1", "1.5", "+1", "01", " 1", "1 ", "4294967296", "0x1"}) {
    LineError error = error_of(chat_line(format(R"("logit_bias":{{"{}":1}})", key)));
    EXPECT_EQ(error.field, "logit_bias") << key;
  }
  EXPECT_EQ(
      refusal_with("logit_bias", R"({"5":101})"),
      "logit_bias.5: expected a number from -100 to 100, found the number 101");
  EXPECT_EQ(error_of(chat_line(R"("logit_bias":[1])")).code, "invalid_type");
}

TEST(Parameters, logprobs_have_two_shapes) {
  Parameters chat = job_of(chat_line(R"("logprobs":true,"top_logprobs":20)")).parameters;
  EXPECT_TRUE(chat.logprobs);
  EXPECT_EQ(chat.top_logprobs, 20);
  EXPECT_EQ(error_of(chat_line(R"("logprobs":true,"top_logprobs":21)")).field, "top_logprobs");
  EXPECT_EQ(error_of(chat_line(R"("logprobs":true,"top_logprobs":-1)")).field, "top_logprobs");
  EXPECT_EQ(error_of(chat_line(R"("logprobs":5)")).code, "invalid_type");
  EXPECT_EQ(
      refusal_with("top_logprobs", "2"),
      "top_logprobs: expected logprobs to be true beside top_logprobs, found it false or missing");
  EXPECT_EQ(parameters_with("top_logprobs", "0").logprobs, false);
  Parameters completion = job_of(completion_line(R"("logprobs":5)")).parameters;
  EXPECT_TRUE(completion.logprobs);
  EXPECT_EQ(completion.top_logprobs, 5);
  EXPECT_EQ(error_of(completion_line(R"("logprobs":6)")).code, "invalid_value");
  EXPECT_EQ(error_of(completion_line(R"("logprobs":true)")).code, "invalid_type");
  EXPECT_EQ(error_of(completion_line(R"("top_logprobs":1)")).code, "unsupported_parameter");
}

TEST(Parameters, best_of_must_be_n) {
  EXPECT_EQ(job_of(completion_line(R"("n":3,"best_of":3)")).parameters.n, 3);
  EXPECT_EQ(job_of(completion_line(R"("best_of":1)")).parameters.n, 1);
  LineError error = error_of(completion_line(R"("n":2,"best_of":3)"));
  EXPECT_EQ(error.text("f"), "f:7: best_of: expected the same as n, 2, found the number 3");
  EXPECT_EQ(error.code, "unsupported_value");
  EXPECT_EQ(error_of(chat_line(R"("best_of":1)")).code, "unsupported_parameter");
}

TEST(Parameters, greedy_choices_may_be_many) {
  Parameters parameters = job_of(chat_line(R"("temperature":0,"n":4)")).parameters;
  EXPECT_EQ(parameters.n, 4);
  EXPECT_EQ(parameters.temperature, 0);
}

TEST(Parameters, template_switches_land) {
  EXPECT_FALSE(job_with("add_generation_prompt", "false").add_generation_prompt);
  Job job = job_with("continue_final_message", "true");
  EXPECT_TRUE(job.continue_final_message);
  EXPECT_FALSE(job.add_generation_prompt);
  EXPECT_EQ(
      error_of(chat_line(R"("continue_final_message":true,"add_generation_prompt":true)")).field,
      "continue_final_message");
  EXPECT_TRUE(job_with("add_special_tokens", "true").add_special_tokens);
  EXPECT_FALSE(job_of(completion_line(R"("add_special_tokens":false)")).add_special_tokens);
  EXPECT_EQ(
      job_with("chat_template_kwargs", R"({"enable_thinking":false})").chat_template_kwargs.dump(),
      R"({"enable_thinking":false})");
  EXPECT_EQ(error_of(chat_line(R"("chat_template_kwargs":[])")).code, "invalid_type");
  for (const char* key : {"messages", "tools", "add_generation_prompt", "continue_final_message"}) {
    LineError error = error_of(chat_line(format(R"("chat_template_kwargs":{{"{}":true}})", key)));
    EXPECT_EQ(error.field, format("chat_template_kwargs.{}", key));
  }
  EXPECT_EQ(
      error_of(completion_line(R"("chat_template_kwargs":{})")).code, "unsupported_parameter");
}

TEST(Parameters, tools_are_given_to_templates_and_never_called) {
  const std::string tools = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
  Job job = job_of(chat_line(format(R"("tools":{},"tool_choice":"none")", tools)));
  EXPECT_EQ(job.tools.dump(), tools);
  EXPECT_TRUE(job.ignored.empty());
  LineError error = error_of(chat_line(member("tools", tools)));
  EXPECT_EQ(error.field, "tool_choice");
  EXPECT_EQ(error.code, "unsupported_value");
  EXPECT_EQ(
      error.message,
      "expected \"none\" beside tools, as answers are not parsed for tool calls, found nothing");
  EXPECT_EQ(
      error_of(chat_line(format(R"("tools":{},"tool_choice":"auto")", tools))).field,
      "tool_choice");
  for (const char* choice : {"\"required\"", "{\"type\":\"function\"}"}) {
    EXPECT_EQ(error_of(chat_line(member("tool_choice", choice))).code, "unsupported_value");
  }
  EXPECT_EQ(error_of(chat_line(member("tools", "{}"))).code, "invalid_type");
  EXPECT_EQ(error_of(chat_line(member("tools", "[1]"))).field, "tools[0]");
  EXPECT_EQ(
      error_of(chat_line(member("tools", R"([{"type":"web_search"}])"))).field, "tools[0].type");
  for (const char* harmless : {"\"tools\":[]", "\"tool_choice\":\"auto\"", "\"tools\":null"}) {
    EXPECT_EQ(job_of(chat_line(harmless)), job_of(chat_line(""))) << harmless;
  }
  EXPECT_EQ(error_of(completion_line(member("tools", tools))).code, "unsupported_parameter");
}

TEST(Parameters, fields_for_templates_land_once) {
  Job job =
      job_of(chat_line(R"("reasoning_effort":"low","verbosity":"high","documents":[{"text":"d"}],)"
                       R"("separate_reasoning":true)"));
  EXPECT_EQ(job.reasoning_effort, "low");
  EXPECT_EQ(job.verbosity, "high");
  EXPECT_EQ(job.documents.dump(), R"([{"text":"d"}])");
  EXPECT_TRUE(job.separate_reasoning);
  EXPECT_EQ(
      error_of(
          chat_line(
              R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"})"))
          .field,
      "reasoning_effort");
  EXPECT_EQ(error_of(chat_line(R"("reasoning_effort":1)")).code, "invalid_type");
  EXPECT_EQ(error_of(completion_line(R"("verbosity":"low")")).code, "unsupported_parameter");
}

TEST(Parameters, extensions_of_vllm_have_ranges_on_both_endpoints) {
  for (auto line : {chat_line, completion_line}) {
    const Job job = job_of(line(
        R"("typical_p":0.5,"allowed_token_ids":[3,4.0],"return_token_ids":true,"bad_words":["x"],)"
        R"("truncate_prompt_tokens":7)"));
    EXPECT_EQ(job.parameters.typical_p, 0.5);
    EXPECT_EQ(job.parameters.allowed_token_ids, (std::vector<int64_t>{3, 4}));
    EXPECT_TRUE(job.parameters.return_token_ids);
    EXPECT_EQ(job.parameters.bad_words, std::vector<std::string>{"x"});
    EXPECT_EQ(error_of(line(R"("bad_words":[" "])")).field, "bad_words[0]");
    EXPECT_EQ(job.truncate_prompt_tokens, 7);
    EXPECT_EQ(job_of(line(R"("truncate_prompt_tokens":-1)")).truncate_prompt_tokens, -1);
    for (const char* bad :
         {R"("typical_p":0)", R"("typical_p":1.01)", R"("truncate_prompt_tokens":0)",
          R"("truncate_prompt_tokens":-2)", R"("allowed_token_ids":[-1])"}) {
      EXPECT_EQ(error_of(line(bad)).code, "invalid_value") << bad;
    }
    for (const char* bad :
         {R"("typical_p":"x")", R"("allowed_token_ids":3)", R"("return_token_ids":1)"}) {
      EXPECT_EQ(error_of(line(bad)).code, "invalid_type") << bad;
    }
  }
}

TEST(Parameters, inert_ones_are_accepted_and_listed) {
  for (const char* key :
       {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "store", "service_tier", "metadata", "cache_salt", "prediction",
        "request_id", "parallel_tool_calls"}) {
    for (const char* value : {"\"x\"", "true", "{\"a\":1}"}) {
      Job job = job_with(key, value);
      EXPECT_EQ(job.ignored, std::vector<std::string>{key});
      EXPECT_EQ(job.parameters, Parameters());
    }
    EXPECT_TRUE(job_with(key, "null").ignored.empty()) << key;
  }
}

struct RefusedRow {
  const char* key;
  const char* value;
  const char* code;
  const char* neutral = "null";
};

const RefusedRow kRefusedRows[] = {
    {"stream", "true", "unsupported_value", "false"},
    {"stream_options", "{\"include_usage\":true}", "unsupported_parameter"},
    {"response_format", "{\"type\":\"json_object\"}", "unsupported_value", "{\"type\":\"text\"}"},
    {"response_format", "{\"type\":\"json_schema\",\"json_schema\":{}}", "unsupported_value"},
    {"structured_outputs", "{}", "unsupported_parameter"},
    {"guided_json", "{}", "unsupported_parameter"},
    {"guided_regex", "\"a\"", "unsupported_parameter"},
    {"guided_choice", "[\"a\"]", "unsupported_parameter"},
    {"guided_grammar", "\"a\"", "unsupported_parameter"},
    {"guided_decoding_backend", "\"a\"", "unsupported_parameter"},
    {"guided_whitespace_pattern", "\"a\"", "unsupported_parameter"},
    {"structural_tag", "\"a\"", "unsupported_parameter"},
    {"json_schema", "\"a\"", "unsupported_parameter"},
    {"grammar", "\"a\"", "unsupported_parameter"},
    {"regex", "\"a\"", "unsupported_parameter"},
    {"ebnf", "\"a\"", "unsupported_parameter"},
    {"functions", "[{}]", "unsupported_parameter", "[]"},
    {"function_call", "{\"name\":\"f\"}", "unsupported_parameter", "\"none\""},
    {"thinking_token_budget", "5", "unsupported_parameter"},
    {"enable_thinking", "true", "unsupported_parameter"},
    {"chat_template", "\"x\"", "unsupported_parameter"},
    {"modalities", "[\"text\",\"audio\"]", "unsupported_value", "[\"text\"]"},
    {"audio", "{}", "unsupported_parameter"},
    {"web_search_options", "{}", "unsupported_parameter"},
    {"moderation", "{}", "unsupported_parameter"},
    {"suffix", "\"x\"", "unsupported_parameter", "\"\""},
    {"use_beam_search", "true", "unsupported_value", "false"},
    {"length_penalty", "0.5", "unsupported_value", "1.0"},
    {"early_stopping", "true", "unsupported_value", "false"},
    {"spaces_between_special_tokens", "false", "unsupported_value", "true"},
    {"priority", "1", "unsupported_value", "0"},
    {"prompt_logprobs", "1", "unsupported_parameter"},
    {"return_tokens_as_token_ids", "true", "unsupported_value", "false"},
    {"prompt_embeds", "\"x\"", "unsupported_parameter"},
    {"logits_processors", "[\"x\"]", "unsupported_parameter", "[]"},
    {"mm_processor_kwargs", "{\"a\":1}", "unsupported_parameter", "{}"},
    {"kv_transfer_params", "{}", "unsupported_parameter"},
    {"vllm_xargs", "{\"a\":1}", "unsupported_parameter", "{}"},
    {"random_seed", "1", "unsupported_parameter"},
    {"safe_prompt", "true", "unsupported_value", "false"},
};

TEST(Parameters, unsupported_ones_are_refused_by_name_on_both_endpoints) {
  for (const RefusedRow& row : kRefusedRows) {
    for (auto line : {chat_line, completion_line}) {
      LineError error = error_of(line(member(row.key, row.value)));
      EXPECT_EQ(error.field, row.key);
      EXPECT_EQ(error.code, row.code) << row.key;
      EXPECT_EQ(error.api_error().param, row.key);
      for (const char* neutral : {"null", row.neutral}) {
        Job job = job_of(line(member(row.key, neutral)));
        EXPECT_TRUE(job.ignored.empty()) << row.key;
        EXPECT_EQ(job, job_of(line(""))) << row.key;
      }
    }
  }
  EXPECT_EQ(
      refusal_with("enable_thinking", "true"),
      "enable_thinking: expected it to be left out, found true (pass it through "
      "chat_template_kwargs where the model's template knows it)");
  EXPECT_EQ(
      refusal_with("stream", "true"),
      "stream: expected false, found true (the answers of a batch are never streamed)");
}

TEST(Parameters, unknown_ones_are_refused_with_the_nearest_name) {
  LineError error = error_of(R"({"body":{"prompt":"x","tempature":1}})");
  EXPECT_EQ(error.code, "unknown_parameter");
  EXPECT_EQ(
      error.text("f"),
      "f:7: body.tempature: expected a parameter of /v1/completions, found \"tempature\", which is "
      "none; did you mean temperature?");
  EXPECT_EQ(
      refusal_with("zzz", "1"),
      "zzz: expected a parameter of /v1/chat/completions, found \"zzz\", which is none");
  EXPECT_EQ(
      refusal_with("echo", "true"),
      "echo: expected a parameter of /v1/chat/completions, found one of /v1/completions");
}

TEST(Parameters, lenient_lists_what_it_leaves_out) {
  LineOptions lenient;
  lenient.lenient = true;
  for (const RefusedRow& row : kRefusedRows) {
    EXPECT_EQ(
        job_of(chat_line(member(row.key, row.value)), lenient).ignored,
        std::vector<std::string>{row.key});
  }
  Job job = job_of(chat_line(R"("zzz":1,"echo":true,"user":"u")"), lenient);
  EXPECT_EQ(job.ignored, (std::vector<std::string>{"zzz", "echo", "user"}));
  EXPECT_EQ(job.parameters, Parameters());
  // What is known and wrong stays wrong.
  EXPECT_EQ(error_of(chat_line(R"("temperature":3)"), lenient).code, "invalid_value");
  EXPECT_EQ(error_of(R"({"messages":[],"prompt":"x"})", lenient).code, "invalid_value");
}

TEST(Parameters, a_model_is_a_string) {
  EXPECT_EQ(job_with("model", "\"m\"").model, "m");
  EXPECT_EQ(job_with("model", "null").model, "");
  EXPECT_EQ(refusal_with("model", "3"), "model: expected a string, found the number 3");
}

}  // namespace
}  // namespace nightsweep
