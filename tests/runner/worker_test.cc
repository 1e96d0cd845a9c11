#include "runner/worker.h"

#include "runner/checkpoint.h"
#include "support/fake_engine.h"
#include "support/runner_fixture.h"

namespace nightsweep {
namespace {

class Workers : public RunnerTest {
 protected:
  std::unique_ptr<FakeEngine> make_engine(uint32_t max_sequences = 8) {
    return std::make_unique<FakeEngine>(model().tokenizer(), max_sequences);
  }

  WorkerOptions options() {
    WorkerOptions options;
    options.claim = [this](const ClaimRequest& request) { return queue_->claim(request); };
    options.model_name = "tiny";
    options.save_every_s = 0;  // every step
    return options;
  }

  Worker::End work(FakeEngine& engine, uint64_t most_steps = UINT64_MAX) {
    RequestMaker maker = model().maker_for(engine.context_tokens());
    Worker worker(*queue_, engine, maker, options());
    Worker::End end =
        worker.run([&] { return engine.n_steps >= most_steps; }, [](const WorkerCounters&) {});
    counters_ = worker.counters();
    return end;
  }

  // Text of choice `index` of a stored completion.
  static std::string text_of(const StoredResult& stored, size_t index = 0) {
    Json body = Json::parse(stored.result.body);
    return body.find("choices")->as_array().at(index).find("text")->as_string();
  }

  std::string some_lines(int n) {
    std::string text;
    for (int i = 0; i < n; ++i)
      text += format("{{\"prompt\":\"prompt {}\",\"seed\":{},\"max_tokens\":{}}}\n", i, i, 5 + i);
    return text;
  }

  WorkerCounters counters_;
};

TEST_F(Workers, every_job_gets_one_answer) {
  Submission batch = submit_text(some_lines(30));
  queue_->become_worker({});
  auto engine = make_engine();
  EXPECT_EQ(work(*engine), Worker::End::idle);
  auto all = results(batch.batch);
  ASSERT_EQ(all.size(), 30U);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].result.status_code, 200);
    EXPECT_EQ(text_of(all[i]).size(), 5 + i);
    EXPECT_EQ(all[i].result.completion_tokens, 5 + i);
  }
  EXPECT_EQ(counters_.answered, 30U);
  EXPECT_EQ(queue_->n_unfinished(batch.batch), 0U);
}

TEST_F(Workers, a_stop_keeps_every_token_and_the_next_worker_goes_on) {
  Submission batch = submit_text(some_lines(6));
  queue_->become_worker({});
  auto first = make_engine();
  EXPECT_EQ(work(*first, 4), Worker::End::stopped);
  EXPECT_EQ(queue_->batch(batch.batch)->counts.running, 0U);
  auto second = make_engine();
  EXPECT_EQ(work(*second), Worker::End::idle);
  EXPECT_EQ(second->n_resumed_tokens, 6U * 4U);

  // The same lines undisturbed say the same.
  Submission again = submit_text(some_lines(6));
  auto third = make_engine(3);
  work(*third);
  auto resumed = results(batch.batch);
  auto undisturbed = results(again.batch);
  ASSERT_EQ(resumed.size(), undisturbed.size());
  for (size_t i = 0; i < resumed.size(); ++i)
    EXPECT_EQ(text_of(resumed[i]), text_of(undisturbed[i]));
}

TEST_F(Workers, finished_choices_of_an_open_job_are_not_computed_again) {
  Submission batch =
      submit_text("{\"prompt\":[\"a\",\"bc\"],\"n\":2,\"seed\":1,\"max_tokens\":6}\n");
  queue_->become_worker({});
  auto first = make_engine(2);
  work(*first, 3);
  auto second = make_engine(2);
  work(*second);
  EXPECT_EQ(second->n_resumed_tokens, 4U * 3U);
  auto all = results(batch.batch);
  ASSERT_EQ(all.size(), 1U);
  Json body = Json::parse(all[0].result.body);
  EXPECT_EQ(body.find("choices")->as_array().size(), 4U);
  EXPECT_NE(text_of(all[0], 0), text_of(all[0], 1)) << "the choice keys the generator";
}

TEST_F(Workers, a_checkpoint_of_another_engine_starts_from_the_prompt) {
  Submission batch = submit_text(some_lines(2));
  queue_->become_worker({});
  auto first = make_engine();
  work(*first, 3);
  auto second = make_engine();
  second->identity_text = "fake/2";
  work(*second);
  EXPECT_EQ(second->n_resumed_tokens, 0U);
  EXPECT_EQ(text_of(results(batch.batch)[0]).size(), 5U);
}

TEST_F(Workers, a_job_that_cannot_be_done_hurts_no_neighbour) {
  std::string too_long(600, 'x');
  Submission batch = submit_text(
      "{\"prompt\":\"good\",\"max_tokens\":3}\n{\"prompt\":\"" + too_long +
      "\",\"max_tokens\":3}\n{\"prompt\":[[7,8,9,10,11,12,13]],\"max_tokens\":3}\n"
      "{\"prompt\":\"also good\",\"max_tokens\":3}\n");
  queue_->become_worker({});
  auto engine = make_engine();
  engine->poison_prompt_tokens = 7;
  work(*engine);
  auto all = results(batch.batch);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(text_of(all[0]).size(), 3U);
  EXPECT_EQ(all[1].result.status_code, 400);
  EXPECT_NE(all[1].result.body.find("context_length_exceeded"), std::string::npos);
  EXPECT_NE(all[2].result.body.find("the logits hold NaN"), std::string::npos);
  EXPECT_EQ(text_of(all[3]).size(), 3U);
  EXPECT_EQ(counters_.failed, 2U);
}

TEST_F(Workers, a_lost_device_costs_nobody_anything) {
  Submission batch = submit_text(some_lines(6));
  queue_->become_worker({});
  auto engine = make_engine();
  engine->lost_at_step = 3;
  try {
    work(*engine);
    FAIL() << "the device was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
  }
  queue_.reset();
  queue_ = Queue::open(folder_.path("queue.db"));
  queue_->become_worker({});
  std::vector<ClaimedJob> jobs = queue_->claim(9, std::nullopt, std::nullopt);
  ASSERT_EQ(jobs.size(), 6U) << "nobody is suspect";
  for (const ClaimedJob& job : jobs) {
    EXPECT_EQ(job.claim.attempt, 1U) << "the attempt was given back";
    EXPECT_FALSE(job.is_suspect);
    EXPECT_NE(job.checkpoint, "") << "its tokens are kept";
  }
}

TEST_F(Workers, a_cancel_takes_effect_within_one_step) {
  Submission batch =
      submit_text("{\"prompt\":\"a\",\"max_tokens\":200}\n{\"prompt\":\"b\",\"max_tokens\":200}\n");
  queue_->become_worker({});
  auto engine = make_engine();
  RequestMaker maker = model().maker_for(engine->context_tokens());
  Worker worker(*queue_, *engine, maker, options());
  auto other = Queue::open(folder_.path("queue.db"));
  worker.run(
      [&] {
        if (engine->n_steps == 5) other->cancel_batch(batch.batch);
        return false;
      },
      [](const WorkerCounters&) {});
  EXPECT_LE(engine->n_steps, 6U);
  EXPECT_EQ(engine->n_active(), 0U) << "its pages are free";
  EXPECT_EQ(other->batch(batch.batch)->status, "cancelled");
}

TEST_F(Workers, echo_gives_the_prompt_back_with_its_scores) {
  Submission batch = submit_text(
      "{\"prompt\":\"abc\",\"echo\":true,\"logprobs\":0,\"max_tokens\":2,\"seed\":3}\n");
  queue_->become_worker({});
  auto engine = make_engine();
  work(*engine);
  auto all = results(batch.batch);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(text_of(all[0]).substr(0, 3), "abc");
  EXPECT_EQ(text_of(all[0]).size(), 5U);
  Json body = Json::parse(all[0].result.body);
  const Json* logprobs = body.find("choices")->as_array()[0].find("logprobs");
  ASSERT_NE(logprobs, nullptr);
  const auto& values = logprobs->find("token_logprobs")->as_array();
  EXPECT_TRUE(values.front().is_null());
  EXPECT_EQ(values.back(), Json(-1.0));
}

TEST(CheckpointText, comes_back_as_it_was) {
  std::vector<TokenIds> choices = {{1, 2, 3}, {}, {319}};
  std::string text = checkpoint_to_text(choices);
  EXPECT_EQ(text, "[[1,2,3],[],[319]]");
  EXPECT_EQ(checkpoint_from_text(text, 3, 320), choices);
  EXPECT_EQ(checkpoint_from_text(text, 2, 320), std::nullopt);
  EXPECT_EQ(checkpoint_from_text(text, 3, 319), std::nullopt);
  EXPECT_EQ(checkpoint_from_text("[[1,2", 1, 320), std::nullopt);
}

}  // namespace
}  // namespace nightsweep
