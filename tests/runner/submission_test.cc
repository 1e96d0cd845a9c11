#include "runner/submission.h"

#include "support/expect_error.h"
#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

class Submissions : public RunnerTest {
 protected:
  // stderr of a submission that is refused.
  std::string messages_of(const std::string& text, const SubmissionOptions& options = {}) {
    testing::internal::CaptureStderr();
    EXPECT_ERROR(ErrorKind::input, submit_text(text, options), "nothing was queued");
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Submissions, a_refused_file_leaves_the_queue_as_it_was) {
  std::string messages = messages_of("{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\",\"top_p\":7}\n");
  EXPECT_NE(messages.find("in.jsonl:3: "), std::string::npos) << messages;
  EXPECT_NE(messages.find("top_p"), std::string::npos) << messages;
  EXPECT_TRUE(queue_->batches(10).empty());
}

TEST_F(Submissions, twenty_messages_and_then_a_count) {
  std::string text;
  for (int i = 0; i < 25; ++i)
    text += "{\"nonsense\":1}\n";
  std::string messages = messages_of(text);
  EXPECT_NE(messages.find("in.jsonl:20: "), std::string::npos);
  EXPECT_EQ(messages.find("in.jsonl:21: "), std::string::npos);
  EXPECT_NE(messages.find("and 5 more"), std::string::npos);
}

TEST_F(Submissions, a_repeated_id_names_both_lines_and_files) {
  std::string a = write_file("a.jsonl", "{\"id\":\"x\",\"prompt\":\"1\"}\n");
  std::string b =
      write_file("b.jsonl", "{\"id\":\"y\",\"prompt\":\"1\"}\n{\"id\":\"x\",\"prompt\":\"1\"}\n");
  testing::internal::CaptureStderr();
  EXPECT_ERROR(ErrorKind::input, (submit({a, b})), "1 of 3 lines");
  std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.find("b.jsonl:2: "), std::string::npos) << messages;
  EXPECT_NE(messages.find("a.jsonl:1"), std::string::npos) << messages;
}

TEST_F(Submissions, lines_without_ids_of_several_files_do_not_collide) {
  std::string a = write_file("a.jsonl", "{\"prompt\":\"1\"}\n{\"prompt\":\"2\"}\n");
  std::string b = write_file("b.jsonl", "{\"prompt\":\"3\"}\n");
  Submission made = submit({a, b});
  EXPECT_EQ(queue_->batch(made.batch)->counts.total, 3U);
}

TEST_F(Submissions, keep_going_gives_bad_lines_an_error_result) {
  SubmissionOptions options;
  options.keep_going = true;
  testing::internal::CaptureStderr();
  Submission made = submit_text(
      "{\"id\":\"a\",\"prompt\":\"1\"}\n{\"id\":\"b\",\"prompt\":7}\n{\"id\":\"a\",\"prompt\":"
      "\"2\"}\nnot json\n",
      options);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(made.n_refused, 3U);
  auto counts = queue_->batch(made.batch)->counts;
  EXPECT_EQ(counts.total, 4U);
  EXPECT_EQ(counts.failed, 3U);
  auto all = results(made.batch);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].custom_id, "b");
  EXPECT_EQ(all[0].result.status_code, 400);
  EXPECT_EQ(all[1].custom_id, "line-3");
  EXPECT_EQ(all[2].custom_id, "line-4");
}

// More lines than wait in memory: they go in slice by slice.
TEST_F(Submissions, of_a_long_file_too_all_lines_are_queued_or_none) {
  constexpr int kLines = 45'000;
  std::string text;
  for (int line = 1; line <= kLines; ++line) {
    if (line == 7 || line == 44'000) {
      text += "{\"nonsense\":1}\n";
    } else {
      int id = line == 43'000 ? 12 : line;
      text += format("{{\"id\":\"{}\",\"prompt\":\"{:100}\"}}\n", id, "p");
    }
  }
  std::string messages = messages_of(text);
  size_t first = messages.find("in.jsonl:7: ");
  size_t repeated = messages.find(
      "in.jsonl:43000: custom_id: expected an id of its own, found "
      "\"12\", which line 12 has");
  size_t last = messages.find("in.jsonl:44000: ");
  ASSERT_NE(last, std::string::npos) << messages;
  EXPECT_LT(first, repeated) << messages;
  EXPECT_LT(repeated, last) << messages;
  EXPECT_TRUE(queue_->batches(10).empty());

  SubmissionOptions options;
  options.keep_going = true;
  testing::internal::CaptureStderr();
  Submission made = submit_text(text, options);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(made.n_refused, 3U);
  auto counts = queue_->batch(made.batch)->counts;
  EXPECT_EQ(counts.total, uint64_t{kLines});
  EXPECT_EQ(counts.failed, 3U);
  auto all = results(made.batch);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].custom_id, "line-43000");
}

TEST_F(Submissions, an_empty_file_is_refused) {
  EXPECT_ERROR(ErrorKind::input, submit_text("\n  \n"), "found none");
  EXPECT_ERROR(ErrorKind::input, (submit({folder_.path("missing.jsonl")})), "missing.jsonl");
}

TEST_F(Submissions, with_a_model_at_hand_prompts_are_checked) {
  SubmissionOptions options;
  options.files = {write_file(
      "in.jsonl", "{\"prompt\":\"short\"}\n{\"prompt\":\"" + std::string(400, 'x') + "\"}\n")};
  testing::internal::CaptureStderr();
  EXPECT_ERROR(ErrorKind::input, submit_files(*queue_, models_, &model(), options), "1 of 2 lines");
  std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.find("in.jsonl:2: body.prompt"), std::string::npos) << messages;
  EXPECT_NE(messages.find("256 tokens"), std::string::npos) << messages;
}

TEST_F(Submissions, defaults_hold_where_a_line_is_silent) {
  SubmissionOptions options;
  options.defaults = {{"max_tokens", Json(3)}};
  Submission made =
      submit_text("{\"prompt\":\"1\"}\n{\"prompt\":\"1\",\"max_tokens\":9}\n", options);
  queue_->become_worker({});
  auto jobs = queue_->claim(2, made.batch, std::nullopt);
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(job_from_text(jobs[0].request).parameters.max_tokens, 3);
  EXPECT_EQ(job_from_text(jobs[1].request).parameters.max_tokens, 9);
}

TEST_F(Submissions, the_same_submission_finds_its_batch_and_another_does_not) {
  SubmissionOptions options;
  options.is_found_again = true;
  std::string text = "{\"prompt\":\"1\"}\n";
  Submission first = submit_text(text, options);
  Submission second = submit_text(text, options);
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(first.batch, second.batch);
  options.defaults = {{"max_tokens", Json(3)}};
  EXPECT_NE(submit_text(text, options).batch, first.batch);
  options.defaults.clear();
  options.key_suffix = "kv=q8_0";
  EXPECT_NE(submit_text(text, options).batch, first.batch);
  options.key_suffix.clear();
  EXPECT_NE(submit_text(text + text, options).batch, first.batch);
}

TEST_F(Submissions, a_known_file_is_not_read_in_again) {
  table_["small"] = {.file = folder_.path("tiny.gguf"), .defaults = {}};
  const PromptModel* model = models_.find("small");
  ASSERT_NE(model, nullptr);
  SubmissionOptions options;
  options.is_found_again = true;
  options.needs_models = true;
  options.files = {write_file("in.jsonl", "{\"prompt\":\"1\"}\n")};
  Submission first = submit_files(*queue_, models_, model, options);
  EXPECT_EQ(first.n_lines, 1U);
  Submission second = submit_files(*queue_, models_, model, options);
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(second.batch, first.batch);
  EXPECT_EQ(second.models, first.models);
  EXPECT_EQ(second.n_lines, 0U) << "no line was looked at";
  options.key_suffix = "kv=q8_0";
  EXPECT_NE(submit_files(*queue_, models_, model, options).batch, first.batch);
  options.key_suffix.clear();
  queue_->cancel_batch(first.batch);
  EXPECT_NE(submit_files(*queue_, models_, model, options).batch, first.batch);
}

TEST_F(Submissions, model_names_are_mapped) {
  table_["small"] = {.file = folder_.path("tiny.gguf"), .defaults = {{"max_tokens", Json(4)}}};
  SubmissionOptions options;
  options.needs_models = true;
  options.model_map = {{"gpt-x", "small"}};
  Submission made = submit_text("{\"prompt\":\"1\",\"model\":\"gpt-x\"}\n", options);
  EXPECT_EQ(made.models, (std::vector<std::string>{folder_.path("tiny.gguf")}));
  queue_->become_worker({});
  auto jobs = queue_->claim(1, made.batch, made.models[0]);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(job_from_text(jobs[0].request).parameters.max_tokens, 4) << "the model's default";
  std::string messages = messages_of("{\"prompt\":\"1\",\"model\":\"gpt-y\"}\n", options);
  EXPECT_NE(messages.find("gpt-y"), std::string::npos) << messages;
}

}  // namespace
}  // namespace nightsweep
