#include "runner/workload.h"

#include "engine/kv_cache.h"
#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

class WorkloadTest : public RunnerTest {
 protected:
  // The model's context is 256 tokens.
  uint32_t pages_of(const std::string& lines) {
    return most_kv_pages(*queue_, submit_text(lines).batch, "", model());
  }
  // `n_tokens` ids as a prompt.
  static std::string
  line(const std::string& id, size_t n_tokens, const std::string& more = R"("max_tokens":10)") {
    return R"({"custom_id":")" + id +
           R"(","method":"POST","url":"/v1/completions","body":{"model":"","prompt":)" +
           ids(n_tokens) + "," + more + "}}\n";
  }
  static std::string ids(size_t n_tokens) {
    std::string text = "[5";
    for (size_t i = 1; i < n_tokens; ++i)
      text += ",5";
    return text + "]";
  }
};

// Each sequence has pages of its own: the mean of their lengths would be too few.
TEST_F(WorkloadTest, every_sequence_has_whole_pages) {
  EXPECT_EQ(pages_of(line("a", 20)), 1U);
  EXPECT_EQ(pages_of(line("a", 20) + line("b", 40) + line("c", 61)), 4U);
  // The last token of an answer is attended to by nobody.
  EXPECT_EQ(pages_of(line("a", kKvPageTokens - 9)), 1U);
  EXPECT_EQ(pages_of(line("a", kKvPageTokens - 8)), 2U);
}

TEST_F(WorkloadTest, a_prompt_that_is_only_scored_is_computed_whole) {
  const std::string scored = R"("max_tokens":0,"echo":true,"logprobs":1)";
  EXPECT_EQ(pages_of(line("a", kKvPageTokens, scored)), 1U);
  EXPECT_EQ(pages_of(line("b", kKvPageTokens + 1, scored)), 2U);
}

TEST_F(WorkloadTest, every_choice_of_every_prompt_is_a_sequence) {
  EXPECT_EQ(pages_of(line("a", 60, R"("max_tokens":10,"n":3,"temperature":1)")), 6U);
  EXPECT_EQ(
      pages_of(
          R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"","prompt":[)" +
          ids(5) + "," + ids(70) +
          R"(],"max_tokens":10}})"
          "\n"),
      3U);
}

TEST_F(WorkloadTest, an_answer_becomes_no_longer_than_the_context) {
  const uint32_t whole = KvCache::pages_for_request(257);
  EXPECT_EQ(pages_of(line("a", 30, R"("max_tokens":200000)")), whole);
  EXPECT_EQ(
      pages_of(R"({"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":)"
               R"({"model":"","messages":[{"role":"user","content":"x"}]}})"
               "\n"),
      whole);
}

TEST_F(WorkloadTest, more_than_256_jobs_are_not_counted) {
  std::string lines;
  for (int i = 0; i < 256; ++i)
    lines += line(std::to_string(i), 8);
  EXPECT_EQ(pages_of(lines), 256U);
  EXPECT_EQ(pages_of(lines + line("one more", 8)), UINT32_MAX);
}

TEST_F(WorkloadTest, what_cannot_be_answered_asks_for_nothing) {
  EXPECT_EQ(pages_of(line("a", 20) + line("too long", 300)), 1U);
  EXPECT_EQ(most_kv_pages(*queue_, "batch_of_another_queue", "", model()), 1U);
}

}  // namespace
}  // namespace nightsweep
