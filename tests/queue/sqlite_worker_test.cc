#include <algorithm>
#include <fstream>
#include <thread>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using WorkerTest = QueueTest;

TEST_F(WorkerTest, a_claim_hands_out_the_whole_job_and_starts_its_batch) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3);
  int64_t submitted_ms = now_ms_;
  now_ms_ += 700;
  std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].claim.attempt, 1U);
  EXPECT_EQ(jobs[0].batch, id);
  EXPECT_EQ(jobs[0].custom_id, "id-1");
  EXPECT_EQ(jobs[0].line, 1U);
  EXPECT_EQ(jobs[0].request, R"({"line":1})");
  EXPECT_EQ(jobs[0].submitted_ms, submitted_ms);
  EXPECT_EQ(jobs[0].checkpoint_identity, "");
  std::optional<BatchInfo> info = queue->batch(id);
  EXPECT_EQ(info->status, "in_progress");
  EXPECT_EQ(info->started_ms, now_ms_);
  EXPECT_EQ(info->counts.running, 2U);
  EXPECT_EQ(queue->claim(9, std::nullopt, std::nullopt).size(), 1U);
  EXPECT_TRUE(queue->claim(9, std::nullopt, std::nullopt).empty());
  EXPECT_EQ(queue->n_unfinished(std::nullopt), 3U);
}

TEST_F(WorkerTest, claims_go_by_priority_then_age) {
  auto queue = open_worker();
  std::string low = submit(*queue, 2, of_priority(-1));
  std::string mid = submit(*queue, 2);
  std::string high = submit(*queue, 2, of_priority(5));
  std::vector<std::string> order;
  for (const ClaimedJob& job : queue->claim(10, std::nullopt, std::nullopt)) {
    order.push_back(job.batch + std::to_string(job.line));
  }
  EXPECT_EQ(
      order, (std::vector<std::string>{
                 high + "1", high + "2", mid + "1", mid + "2", low + "1", low + "2"}));
}

TEST_F(WorkerTest, claims_keep_to_a_batch_or_a_model) {
  auto queue = open_worker();
  std::string a = submit(*queue, 3, {}, "model-a");
  std::string b = submit(*queue, 3, of_priority(1), "model-b");
  std::string none = submit(*queue, 1);
  EXPECT_EQ(queue->waiting_models(), (std::vector<std::string>{"model-b", "model-a", ""}));
  for (const ClaimedJob& job : queue->claim(2, a, std::nullopt))
    EXPECT_EQ(job.batch, a);
  for (const ClaimedJob& job : queue->claim(9, std::nullopt, "model-a"))
    EXPECT_EQ(job.batch, a);
  EXPECT_EQ(queue->waiting_models(), (std::vector<std::string>{"model-b", ""}));
  EXPECT_TRUE(queue->claim(9, b, "model-a").empty());
  EXPECT_EQ(queue->claim(9, b, "model-b").size(), 3U);
  EXPECT_TRUE(queue->claim(9, "batch_unknown", std::nullopt).empty());
  EXPECT_TRUE(queue->claim(9, std::nullopt, "model-unknown").empty());
  EXPECT_EQ(queue->claim(9, std::nullopt, "").at(0).batch, none);
}

TEST_F(WorkerTest, a_batch_ends_with_its_last_job) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3);
  std::vector<ClaimedJob> jobs = queue->claim(3, std::nullopt, std::nullopt);
  NewResult lost;
  lost.error_code = "lost";
  lost.error_message = "gone";
  queue->save({}, {{jobs[0].claim, answer()}, {jobs[1].claim, lost}});
  EXPECT_EQ(queue->batch(id)->status, "in_progress");
  now_ms_ += 100;
  queue->save({}, {{jobs[2].claim, refusal()}});
  std::optional<BatchInfo> info = queue->batch(id);
  EXPECT_EQ(info->status, "completed");
  EXPECT_EQ(info->ended_ms, now_ms_);
  EXPECT_EQ(info->counts.completed, 1U);
  EXPECT_EQ(info->counts.failed, 2U);
  EXPECT_EQ(info->counts.running, 0U);
  EXPECT_EQ(info->prompt_tokens, 3U);
  EXPECT_EQ(info->completion_tokens, 5U);
  EXPECT_EQ(queue->n_unfinished(id), 0U);
  EXPECT_EQ(queue->results_by_line(id, 1, 1).at(0).result.error_message, "gone");
  expect_counters_agree(path_);
}

TEST_F(WorkerTest, a_stale_claim_changes_nothing_and_is_named) {
  auto queue = open_worker();
  submit(*queue, 5);
  Claim released = queue->claim(1, std::nullopt, std::nullopt).at(0).claim;
  queue->release({released});
  Claim again = queue->claim(1, std::nullopt, std::nullopt).at(0).claim;
  EXPECT_EQ(again.job, released.job);
  EXPECT_EQ(again.attempt, 1U);  // given back
  Claim finished = queue->claim(1, std::nullopt, std::nullopt).at(0).claim;
  queue->save({}, {{finished, answer()}});
  Claim of_other_attempt = again;
  ++of_other_attempt.attempt;
  Claim unknown = {999, 1, again.group};

  std::vector<std::string> before = all_rows(path_);
  for (const Claim& claim : {released, finished, of_other_attempt, unknown}) {
    EXPECT_EQ(queue->save({{claim, "m", "data"}}, {}), std::vector<Claim>{claim});
    EXPECT_EQ(queue->save({}, {{claim, answer()}}), std::vector<Claim>{claim});
    queue->release({claim});
    EXPECT_TRUE(queue->stopped({claim}).empty());
  }
  EXPECT_EQ(all_rows(path_), before);
  // What stands beside a stale one is saved.
  EXPECT_EQ(queue->save({{released, "m", "x"}}, {{again, answer()}}), std::vector<Claim>{released});
  expect_counters_agree(path_);
}

TEST_F(WorkerTest, a_worker_that_lost_its_job_cannot_write_to_it) {
  auto old_worker = open();
  old_worker->register_owner({});  // as if it still ran, without the lock
  submit(*old_worker, 1);
  Claim old_claim = old_worker->claim(1, std::nullopt, std::nullopt).at(0).claim;
  boot_id_ = "boot-2";  // the attempt is given back: job, attempt and group are the same again
  auto new_worker = open_worker();
  Claim new_claim = new_worker->claim(1, std::nullopt, std::nullopt).at(0).claim;
  EXPECT_EQ(new_claim, old_claim);
  EXPECT_EQ(old_worker->save({}, {{old_claim, answer()}}), std::vector<Claim>{old_claim});
  EXPECT_TRUE(new_worker->save({}, {{new_claim, answer()}}).empty());
  expect_counters_agree(path_);
}

TEST_F(WorkerTest, a_job_is_completed_once_even_in_one_save) {
  auto queue = open_worker();
  std::string id = submit(*queue, 1);
  Claim claim = queue->claim(1, std::nullopt, std::nullopt).at(0).claim;
  EXPECT_EQ(
      queue->save({}, {{claim, answer("one")}, {claim, answer("two")}}), std::vector<Claim>{claim});
  EXPECT_EQ(queue->results_by_line(id, 0, 9).size(), 1U);
  EXPECT_EQ(queue->results_by_line(id, 0, 9)[0].result.body, answer("one").body);
}

TEST_F(WorkerTest, a_released_job_keeps_its_checkpoint) {
  auto queue = open_worker();
  submit(*queue, 1);
  Claim claim = queue->claim(1, std::nullopt, std::nullopt).at(0).claim;
  std::string data("\0\xFF tokens", 9);
  queue->save({{claim, "model-1", "older"}}, {});
  queue->save({{claim, "model-1", data}}, {});
  queue->release({claim});
  ClaimedJob again = queue->claim(1, std::nullopt, std::nullopt).at(0);
  EXPECT_EQ(again.checkpoint_identity, "model-1");
  EXPECT_EQ(again.checkpoint, data);
  queue->save({}, {{again.claim, answer()}});
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM checkpoint"), "0");
}

TEST_F(WorkerTest, a_reboot_or_an_orderly_end_costs_nothing) {
  { submit(*open(), 2); }
  in_killed_child([&] {
    auto queue = open_worker();
    std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
    queue->save({{jobs[0].claim, "m", "tokens"}}, {});
    queue.release();
  });
  const char* sql = "SELECT state, attempt, strikes FROM job";
  std::vector<std::string> unharmed = {"waiting|0|0", "waiting|0|0"};
  boot_id_ = "boot-2";
  {
    auto queue = open_worker();
    EXPECT_EQ(Sql(path_).rows(sql), unharmed);
    std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
    EXPECT_EQ(jobs[0].claim.attempt, 1U);
    EXPECT_EQ(jobs[0].checkpoint, "tokens");
  }
  auto queue = open_worker();
  EXPECT_EQ(Sql(path_).rows(sql), unharmed);
  expect_counters_agree(path_);
}

TEST_F(WorkerTest, four_threads_never_claim_the_same_job) {
  constexpr uint64_t kJobs = 20'000;
  { submit(*open(), kJobs); }
  std::vector<std::vector<int64_t>> claimed(4);
  std::vector<std::thread> threads;
  for (std::vector<int64_t>& mine : claimed) {
    threads.emplace_back([this, &mine] {
      auto queue = open();
      queue->register_owner({});
      for (uint32_t n = 1;; n = n % 97 + 13) {
        std::vector<ClaimedJob> jobs = queue->claim(n, std::nullopt, std::nullopt);
        if (jobs.empty()) return;
        for (const ClaimedJob& job : jobs)
          mine.push_back(job.claim.job);
        if (n % 2 == 0) queue->save({}, completions(jobs));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& mine : claimed)
    all.insert(all.end(), mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kJobs);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  expect_counters_agree(path_);
}

TEST_F(WorkerTest, claiming_before_becoming_a_worker_is_a_fault_of_ours) {
  auto queue = open();
  submit(*queue, 1);
  expect_error(
      error_of([&] { queue->claim(1, std::nullopt, std::nullopt); }), ErrorKind::internal,
      "before become_worker");
}

TEST_F(WorkerTest, damage_is_looked_for_after_a_crash_only) {
  { submit(*open(), 3000); }
  in_killed_child([&] { open_worker().release(); });
  {
    // The last page holds requests, which no start reads.
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4096, std::ios::end);
    file << std::string(4096, '\x5A');
  }
  expect_error(error_of([&] { open_worker(); }), ErrorKind::queue, "damaged");
  // Said to have ended well, it is believed.
  Sql(path_).rows("UPDATE worker SET ended_ms = 1");
  open_worker();
}

}  // namespace
}  // namespace nightsweep
