#include <gtest/gtest.h>

#include "jobs/jsonl.h"

namespace nightsweep {
namespace {

TEST(ExpectedTokens, are_those_of_the_longest_prompt_and_the_answer) {
  Job job;
  job.prompts = {std::string(40, 'x'), TokenIds(30, 1)};
  job.parameters.max_tokens = 100;
  EXPECT_EQ(expected_tokens(job), 130U);
  job.prompts.resize(1);
  EXPECT_EQ(expected_tokens(job), 110U);
  job.truncate_prompt_tokens = 4;
  EXPECT_EQ(expected_tokens(job), 104U);
  job.truncate_prompt_tokens = -1;
  EXPECT_EQ(expected_tokens(job), 110U);
  job.parameters.max_tokens.reset();
  EXPECT_GT(expected_tokens(job), 200U) << "an answer of the usual length";
}

TEST(ExpectedTokens, of_a_chat_count_its_messages_and_tools) {
  Job job;
  job.parameters.max_tokens = 0;
  job.messages = Json::parse(R"([{"role":"user","content":"0123456789"}])");
  const uint64_t plain = expected_tokens(job);
  EXPECT_GE(plain, 2U);
  job.tools = Json::parse(R"([{"type":"function","function":{"name":"look_it_up"}}])");
  EXPECT_GT(expected_tokens(job), plain);
}

}  // namespace
}  // namespace nightsweep
