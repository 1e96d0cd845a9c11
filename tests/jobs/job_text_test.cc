#include <gtest/gtest.h>

#include <cfloat>
#include <limits>
#include <random>

#include "base/error.h"
#include "jobs/jsonl.h"

namespace nightsweep {
namespace {

Job full_job() {
  Job job;
  job.custom_id = std::string("id \xC3\xA4\0\n\"", 8);
  job.line = 123456789012;
  job.endpoint = Endpoint::completions;
  job.model = "m";
  job.messages = Json::parse(R"([{"role":"user","content":"hi","x":[1,2.5,null,true]}])");
  job.chat_template_kwargs = Json::parse(R"({"z":1,"a":1.0})");
  job.add_generation_prompt = false;
  job.continue_final_message = true;
  job.prompts = {"a", TokenIds{0, 5, 4294967295}, ""};
  job.add_special_tokens = false;
  job.ignored = {"user", "store"};
  Parameters& parameters = job.parameters;
  parameters.temperature = 0.1;
  parameters.top_p = std::nextafter(1.0, 0.0);
  parameters.min_p = DBL_MIN;
  parameters.top_k = 40;
  parameters.repetition_penalty = DBL_MAX;
  parameters.frequency_penalty = -1.0 / 3;
  parameters.presence_penalty = 2.0 / 3;
  parameters.logit_bias = {{0, -100}, {4294967295, 0.1}};
  parameters.seed = std::numeric_limits<int64_t>::min();
  parameters.max_tokens = 0;
  parameters.min_tokens = 3;
  parameters.ignore_eos = true;
  parameters.stop = {"\n", "a,b"};
  parameters.stop_token_ids = {1, 4294967295};
  parameters.include_stop_str_in_output = true;
  parameters.skip_special_tokens = false;
  parameters.n = 128;
  parameters.logprobs = true;
  parameters.top_logprobs = 20;
  parameters.echo = true;
  return job;
}

TEST(JobText, every_field_comes_back_exactly) {
  EXPECT_EQ(job_from_text(job_to_text(full_job())), full_job());
  EXPECT_EQ(job_from_text(job_to_text(Job())), Job());
}

TEST(JobText, seeds_and_doubles_come_back_to_the_last_bit) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    Job job;
    job.parameters.seed = static_cast<int64_t>(random());
    job.parameters.temperature = std::ldexp(static_cast<double>(random() >> 11), -(i % 300));
    Job back = job_from_text(job_to_text(job));
    ASSERT_EQ(back.parameters.seed, job.parameters.seed);
    ASSERT_EQ(back.parameters.temperature, job.parameters.temperature);
  }
  for (int64_t seed : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    Job job;
    job.parameters.seed = seed;
    EXPECT_EQ(job_from_text(job_to_text(job)).parameters.seed, seed);
  }
}

TEST(JobText, the_text_is_compact_and_versioned) {
  EXPECT_EQ(job_to_text(Job()), R"({"v":1})");
  Job job;
  job.custom_id = "a";
  job.line = 3;
  job.parameters.temperature = 0;
  EXPECT_EQ(job_to_text(job), R"({"v":1,"custom_id":"a","line":3,"temperature":0.0})");
}

// The defaults are part of the stored form: who changes one must raise the version.
TEST(JobText, defaults_of_version_1_are_fixed) {
  Parameters parameters = job_from_text(R"({"v":1})").parameters;
  EXPECT_EQ(parameters.temperature, 1);
  EXPECT_EQ(parameters.top_p, 1);
  EXPECT_EQ(parameters.min_p, 0);
  EXPECT_EQ(parameters.top_k, 0);
  EXPECT_EQ(parameters.repetition_penalty, 1);
  EXPECT_EQ(parameters.frequency_penalty, 0);
  EXPECT_EQ(parameters.presence_penalty, 0);
  EXPECT_EQ(parameters.seed, 0);
  EXPECT_EQ(parameters.max_tokens, std::nullopt);
  EXPECT_EQ(parameters.min_tokens, 0);
  EXPECT_FALSE(parameters.ignore_eos);
  EXPECT_FALSE(parameters.include_stop_str_in_output);
  EXPECT_TRUE(parameters.skip_special_tokens);
  EXPECT_EQ(parameters.n, 1);
  EXPECT_FALSE(parameters.logprobs);
  EXPECT_EQ(parameters.top_logprobs, 0);
  EXPECT_FALSE(parameters.echo);
  Job job = job_from_text(R"({"v":1})");
  EXPECT_EQ(job.endpoint, Endpoint::chat);
  EXPECT_TRUE(job.add_generation_prompt);
  EXPECT_FALSE(job.continue_final_message);
  EXPECT_TRUE(job.add_special_tokens);
}

TEST(JobText, damage_and_newer_versions_are_queue_errors) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"v":"1"})", R"({"v":2})", R"({"v":1,"unknown":1})",
        R"({"v":1,"line":-1})", R"({"v":1,"n":"1"})", R"({"v":1,"endpoint":"/v1/embeddings"})",
        R"({"v":1,"prompts":[[-1]]})", R"({"v":1,"prompts":{}})", R"({"v":1,"logit_bias":[[1]]})",
        R"({"v":1,"stop":[1]})"}) {
    try {
      job_from_text(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::queue) << text;
    }
  }
}

}  // namespace
}  // namespace nightsweep
