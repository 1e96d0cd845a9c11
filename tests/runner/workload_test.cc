#include "runner/workload.h"

#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

class WorkloadTest : public RunnerTest {
 protected:
  std::optional<Workload> work_of(const std::string& lines) {
    const std::string batch = submit_text(lines).batch;
    return workload_of(*queue_, batch, "", model().maker());
  }
  // `n_tokens` ids as a prompt.
  static std::string
  line(const std::string& id, size_t n_tokens, const std::string& more = R"("max_tokens":10)") {
    std::string ids = "5";
    for (size_t i = 1; i < n_tokens; ++i)
      ids += ",5";
    return R"({"custom_id":")" + id +
           R"(","method":"POST","url":"/v1/completions","body":{"model":"","prompt":[)" + ids +
           "]," + more + "}}\n";
  }
};

TEST_F(WorkloadTest, sequences_are_counted_and_their_length_is_the_mean) {
  const auto work = work_of(line("a", 20) + line("b", 40) + line("c", 61));
  ASSERT_TRUE(work);
  EXPECT_EQ(work->n_sequences, 3U);
  EXPECT_EQ(work->typical_tokens, 51U);  // 151 / 3, rounded up
  EXPECT_EQ(work->longest_tokens, 71U);
}

TEST_F(WorkloadTest, every_choice_is_a_sequence) {
  const auto work =
      work_of(line("a", 30, R"("max_tokens":10,"n":3,"temperature":1)") + line("b", 50));
  ASSERT_TRUE(work);
  EXPECT_EQ(work->n_sequences, 4U);
  EXPECT_EQ(work->typical_tokens, 45U);  // (3 x 40 + 60) / 4
}

TEST_F(WorkloadTest, a_high_limit_of_an_answer_is_no_promise) {
  const auto work =
      work_of(line("a", 30, R"("max_tokens":200000)") + line("b", 30, R"("max_tokens":600)"));
  ASSERT_TRUE(work);
  EXPECT_EQ(work->typical_tokens, 542U);
  EXPECT_EQ(work->longest_tokens, 200030U);
}

TEST_F(WorkloadTest, many_jobs_fill_any_engine) {
  std::string lines;
  for (int i = 0; i < 256; ++i)
    lines += line(std::to_string(i), 8);
  EXPECT_EQ(work_of(lines)->n_sequences, 256U);
  EXPECT_FALSE(work_of(lines + line("one more", 8)));
}

TEST_F(WorkloadTest, what_cannot_be_answered_asks_for_nothing) {
  EXPECT_EQ(work_of(line("a", 20) + line("too long", 300))->n_sequences, 1U);
  EXPECT_FALSE(workload_of(*queue_, "batch_of_another_queue", "", model().maker()));
}

}  // namespace
}  // namespace nightsweep
