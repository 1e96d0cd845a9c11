#include "runner/worker.h"

#include <sqlite3.h>

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
    options.save_every_s = save_every_s_;
    options.joules = joules_;
    options.energy_look_every_s = 0;
    options.sweep_row_every_s = sweep_row_every_s_;
    options.model_file = "/models/tiny.gguf";
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

  void run_sql(const std::string& statement) {
    sqlite3* handle = nullptr;
    sqlite3_open(folder_.path("queue.db").c_str(), &handle);
    EXPECT_EQ(sqlite3_exec(handle, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
  }

  WorkerCounters counters_;
  double save_every_s_ = 0;  // every step
  double sweep_row_every_s_ = SweepLog::kRowEvery;
  std::function<std::optional<double>()> joules_;
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

// Four places, and more long answers than that at the end of the file.
TEST_F(Workers, the_longest_go_first_and_the_tail_is_short) {
  const auto n_steps = [&](bool is_known) {
    std::string lines;
    for (int i = 0; i < 41; ++i) {
      lines += format(
          "{{\"prompt\":\"{}\",\"seed\":1,\"max_tokens\":{},\"user\":\"{}\"}}\n", i,
          i < 36 ? 20 : 200, is_known);
    }
    Submission batch = submit_text(lines);
    if (!is_known) run_sql("UPDATE job SET length = 0");
    auto engine = make_engine(4);
    engine->has_places = true;
    work(*engine);
    const auto all = results(batch.batch);
    EXPECT_EQ(all.size(), 41U);
    EXPECT_EQ(text_of(all[0]).size(), 20U) << "results stay in the order of the lines";
    EXPECT_EQ(text_of(all[40]).size(), 200U);
    return engine->n_steps;
  };
  queue_->become_worker({});
  save_every_s_ = 1;  // a thousand steps, whose syncs are not the point
  // All together are 430 steps of four.
  EXPECT_LE(n_steps(true), 445U);
  EXPECT_GE(n_steps(false), 560U) << "the control: in the order of lines one is left alone";
}

TEST_F(Workers, sweeps_are_summed_up_in_the_queue) {
  sweep_row_every_s_ = 0;
  submit_text(some_lines(4));
  queue_->become_worker({});
  auto engine = make_engine();
  work(*engine);
  const std::vector<SweepRecord> records = queue_->sweeps_since(0);
  EXPECT_EQ(records.size(), engine->n_steps);
  uint64_t n_new = 0;
  double queue_s = 0;
  for (const SweepRecord& record : records) {
    n_new += record.new_tokens;
    queue_s += record.queue_s;
    EXPECT_EQ(record.new_tokens, record.decode_tokens) << "a fake has no prompts to compute";
    EXPECT_EQ(record.n_sweeps, 1U);
    EXPECT_EQ(record.model, "/models/tiny.gguf");
    EXPECT_EQ(record.binding, "device");
    EXPECT_LT(record.energy_j, 0) << "nobody measures";
    EXPECT_GE(record.end_ms, record.begin_ms);
  }
  EXPECT_EQ(n_new, 5U + 6 + 7 + 8);
  EXPECT_GT(queue_s, 0) << "saves lie between the steps";
}

TEST_F(Workers, energy_is_shared_by_tokens_and_absent_where_it_is_not_measured) {
  Submission batch = submit_text(some_lines(3));
  queue_->become_worker({});
  auto engine = make_engine();
  // What was used before the first step is nobody's.
  joules_ = [&] { return 1000 + 0.5 * static_cast<double>(engine->n_decoded); };
  work(*engine);
  const auto energy_of = [](const StoredResult& stored) {
    const Json timings = Json::parse(stored.result.nightsweep);
    const Json* energy = timings.find("energy_j");
    return energy == nullptr ? -1 : energy->as_double();
  };
  const auto all = results(batch.batch);
  EXPECT_DOUBLE_EQ(energy_of(all[0]), 0.5 * 5);
  EXPECT_DOUBLE_EQ(energy_of(all[2]), 0.5 * 7);
  EXPECT_DOUBLE_EQ(counters_.energy_j, 0.5 * (5 + 6 + 7));
  double recorded_j = 0;
  for (const SweepRecord& record : queue_->sweeps_since(0))
    recorded_j += record.energy_j;
  EXPECT_DOUBLE_EQ(recorded_j, counters_.energy_j);

  joules_ = [] { return std::optional<double>(); };
  Submission again = submit_text(some_lines(2));
  work(*engine);
  EXPECT_EQ(energy_of(results(again.batch)[0]), -1);
  EXPECT_LT(counters_.energy_j, 0);
}

TEST_F(Workers, usage_tells_what_was_shared_of_a_prompt) {
  Submission batch = submit_text("{\"prompt\":[\"abcdef\",\"abc\"],\"n\":2,\"max_tokens\":3}\n");
  queue_->become_worker({});
  auto engine = make_engine();
  engine->n_shared_tokens = 2;
  work(*engine);
  const Json body = Json::parse(results(batch.batch)[0].result.body);
  EXPECT_EQ(
      body.find("usage")->find("prompt_tokens_details")->find("cached_tokens")->as_integer(), 4)
      << "once a prompt, not once a choice";
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
