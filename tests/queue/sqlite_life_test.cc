// Cancel, expiry, retry, prune; and the same through SQL.

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using LifeTest = QueueTest;

std::vector<Claim> claims_of(const std::vector<ClaimedJob>& jobs) {
  std::vector<Claim> claims;
  for (const ClaimedJob& job : jobs)
    claims.push_back(job.claim);
  return claims;
}

// What the worker does with the claims that it is told to stop.
void end_stopped(Queue& queue, const std::vector<Claim>& claims) {
  std::vector<Completion> done;
  for (const StoppedClaim& stopped : queue.stopped(claims)) {
    Completion completion;
    completion.claim = stopped.claim;
    completion.result.error_code = stopped.error_code;
    done.push_back(completion);
  }
  queue.save({}, done);
}

TEST_F(LifeTest, a_cancelled_batch_keeps_its_answers_and_gives_the_rest_an_error) {
  auto queue = open_worker();
  std::string id = submit(*queue, 10);
  std::vector<ClaimedJob> jobs = queue->claim(4, std::nullopt, std::nullopt);
  queue->save({}, {{jobs[0].claim, answer()}});
  EXPECT_TRUE(open()->cancel_batch(id));
  EXPECT_EQ(queue->batch(id)->status, "cancelling");
  EXPECT_EQ(queue->batch(id)->counts.failed, 6U) << "what waited has ended at once";
  EXPECT_EQ(queue->stopped(claims_of(jobs)).size(), 3U);
  end_stopped(*queue, claims_of(jobs));
  std::optional<BatchInfo> info = queue->batch(id);
  EXPECT_EQ(info->status, "cancelled");
  EXPECT_EQ(info->counts.completed, 1U);
  EXPECT_EQ(info->counts.failed, 9U);
  std::vector<StoredResult> results = queue->results_by_line(id, 0, 99);
  ASSERT_EQ(results.size(), 10U);
  EXPECT_EQ(results[0].result.body, answer().body);
  EXPECT_EQ(results[9].result.error_code, "cancelled");
  EXPECT_FALSE(queue->cancel_batch(id)) << "it has ended";
  expect_counters_agree(path_);
}

TEST_F(LifeTest, one_job_is_cancelled_alone_waiting_or_running) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3);
  std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
  EXPECT_EQ(queue->cancel_job(id, "id-3"), std::optional(true));
  EXPECT_EQ(queue->batch(id)->counts.failed, 1U);
  EXPECT_EQ(queue->cancel_job(id, "id-2"), std::optional(true));
  EXPECT_EQ(queue->stopped(claims_of(jobs)).at(0).claim, jobs[1].claim);
  end_stopped(*queue, claims_of(jobs));
  EXPECT_EQ(queue->cancel_job(id, "id-2"), std::optional(false));
  EXPECT_EQ(queue->cancel_job(id, "nobody"), std::nullopt);
  queue->save({}, {{jobs[0].claim, answer()}});
  EXPECT_EQ(queue->batch(id)->status, "completed") << "the batch itself was not cancelled";
  expect_counters_agree(path_);
}

TEST_F(LifeTest, what_is_left_of_an_expired_batch_gets_an_error) {
  auto queue = open_worker();
  NewBatch settings;
  settings.expires_ms = now_ms_ + 1000;
  std::string id = submit(*queue, 4, settings);
  std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
  queue->save({}, {{jobs[0].claim, answer()}});
  EXPECT_EQ(queue->settle(), 0U);
  now_ms_ += 1000;
  EXPECT_EQ(queue->settle(), 2U);
  EXPECT_EQ(queue->batch(id)->status, "finalizing");
  EXPECT_EQ(queue->stopped(claims_of(jobs)).at(0).error_code, "expired");
  end_stopped(*queue, claims_of(jobs));
  EXPECT_EQ(queue->batch(id)->status, "expired");
  EXPECT_EQ(queue->batch(id)->counts.completed, 1U);
  EXPECT_EQ(queue->results_by_line(id, 3, 1).at(0).result.error_code, "expired");
  expect_counters_agree(path_);
}

TEST_F(LifeTest, failed_jobs_wait_again_after_a_retry_and_their_batch_is_open) {
  auto queue = open_worker();
  std::string id = submit(*queue, 4);
  std::vector<ClaimedJob> jobs = queue->claim(4, std::nullopt, std::nullopt);
  NewResult lost;
  lost.error_code = "quarantined";
  queue->save(
      {}, {{jobs[0].claim, answer()},
           {jobs[1].claim, refusal()},
           {jobs[2].claim, lost},
           {jobs[3].claim, refusal()}});
  EXPECT_EQ(queue->retry(id, {"id-2"}), 1U);
  EXPECT_EQ(queue->batch(id)->status, "in_progress");
  EXPECT_EQ(queue->batch(id)->ended_ms, 0);
  EXPECT_EQ(queue->retry(id, {}), 2U);
  std::vector<ClaimedJob> again = queue->claim(9, std::nullopt, std::nullopt);
  ASSERT_EQ(again.size(), 3U);
  queue->save({}, completions(again));
  EXPECT_EQ(queue->batch(id)->status, "completed");
  EXPECT_EQ(queue->batch(id)->counts.completed, 4U);
  EXPECT_EQ(queue->retry(id, {}), 0U);
  expect_error(error_of([&] { queue->retry(id, {"id-1"}); }), ErrorKind::usage, "completed");
  expect_error(error_of([&] { queue->retry(id, {"nobody"}); }), ErrorKind::usage, "nobody");
  expect_counters_agree(path_);
}

TEST_F(LifeTest, a_cancelled_batch_can_be_retried_unless_it_was_submitted_again) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3, keyed("k"));
  queue->cancel_batch(id);
  EXPECT_EQ(queue->retry(id, {}), 3U);
  EXPECT_EQ(queue->batch(id)->status, "in_progress");
  queue->cancel_batch(id);
  std::string again = submit(*queue, 3, keyed("k"));
  expect_error(error_of([&] { queue->retry(id, {}); }), ErrorKind::usage, again);
  expect_counters_agree(path_);
}

TEST_F(LifeTest, pruned_batches_leave_nothing_behind) {
  auto queue = open_worker();
  std::string old = submit(*queue, 7000, keyed("k"));
  queue->cancel_batch(old);
  now_ms_ += 1000;
  std::string open_one = submit(*queue, 2);
  EXPECT_EQ(queue->batches_ended_before(now_ms_).size(), 1U);
  expect_error(error_of([&] { queue->prune({open_one}); }), ErrorKind::usage, "has not ended");
  queue->prune({old});
  EXPECT_FALSE(queue->batch(old).has_value());
  for (const char* table : {"job", "request"})
    EXPECT_EQ(Sql(path_).one(format("SELECT count(*) FROM {}", table)), "2") << table;
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM result"), "0");
  queue->compact();
  EXPECT_EQ(Sql(path_).one("PRAGMA freelist_count"), "0");
  expect_counters_agree(path_);
}

TEST_F(LifeTest, a_prune_that_was_killed_is_out_of_sight_and_finished_by_the_next_worker) {
  std::string id;
  {
    auto queue = open();
    id = submit(*queue, 3);
    queue->cancel_batch(id);
  }
  Sql(path_).rows(
      "PRAGMA foreign_keys = ON; UPDATE batch SET is_hidden = 1; DELETE FROM job WHERE line = 1");
  EXPECT_FALSE(open()->batch(id).has_value());
  EXPECT_TRUE(open()->batches(9).empty());
  expect_counters_agree(path_);
  open_worker();
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM batch"), "0");
}

TEST_F(LifeTest, an_idempotency_key_adds_once_and_stands_for_one_content) {
  auto queue = open();
  NewBatch settings;
  settings.idempotency_key = "tonight";
  settings.content = "hash";
  std::string id = submit(*queue, 3, settings);
  EXPECT_EQ(submit(*queue, 3, settings), id);
  EXPECT_EQ(queue->batches(9).size(), 1U);
  settings.content = "another";
  expect_error(error_of([&] { submit(*queue, 3, settings); }), ErrorKind::usage, id);
  EXPECT_EQ(queue->batch_of_content("hash")->id, id);
  EXPECT_FALSE(queue->batch_of_content("another").has_value());
  expect_counters_agree(path_);
}

// ---- SQL under the worker's eyes ----

TEST_F(LifeTest, sql_cancels_and_the_worker_notices) {
  auto queue = open_worker();
  std::string id = submit(*queue, 6);
  std::vector<ClaimedJob> jobs = queue->claim(3, std::nullopt, std::nullopt);
  queue->has_changed();
  EXPECT_FALSE(queue->has_changed());
  Sql sql(path_);
  EXPECT_TRUE(
      sql.rows(format(
                   "UPDATE jobs SET status = 'cancelled' WHERE batch_id = '{}' AND custom_id IN"
                   " ('id-1', 'id-6')",
                   id))
          .empty());
  EXPECT_TRUE(queue->has_changed());
  EXPECT_EQ(queue->stopped(claims_of(jobs)).size(), 1U);
  EXPECT_EQ(queue->settle(), 1U);
  EXPECT_TRUE(
      sql.rows(format("UPDATE batches SET status = 'cancelled' WHERE id = '{}'", id)).empty());
  end_stopped(*queue, claims_of(jobs));
  queue->settle();
  EXPECT_EQ(queue->batch(id)->status, "cancelled");
  EXPECT_EQ(
      sql.one(
          format("SELECT count(*) FROM jobs WHERE batch_id = '{}' AND status = 'cancelled'", id)),
      "6");
  expect_counters_agree(path_);
}

TEST_F(LifeTest, sql_retries_failed_jobs) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3);
  std::vector<ClaimedJob> jobs = queue->claim(3, std::nullopt, std::nullopt);
  queue->save(
      {}, {{jobs[0].claim, answer()}, {jobs[1].claim, refusal()}, {jobs[2].claim, refusal()}});
  Sql sql(path_);
  EXPECT_TRUE(sql.rows("UPDATE jobs SET status = 'waiting' WHERE status = 'failed'").empty());
  EXPECT_EQ(queue->batch(id)->status, "in_progress");
  EXPECT_EQ(queue->claim(9, std::nullopt, std::nullopt).size(), 2U);
  expect_counters_agree(path_);
}

TEST_F(LifeTest, sql_that_is_not_part_of_the_interface_is_refused_and_changes_nothing) {
  auto queue = open_worker();
  submit(*queue, 3);
  queue->save({}, {{queue->claim(1, std::nullopt, std::nullopt).at(0).claim, answer()}});
  std::vector<std::string> before = all_rows(path_);
  Sql sql(path_);
  for (const char* statement :
       {"UPDATE batches SET status = 'completed'", "UPDATE jobs SET status = 'completed'",
        "UPDATE jobs SET status = 'waiting' WHERE status = 'completed'",
        "UPDATE batches SET id = 'x'", "DELETE FROM jobs", "INSERT INTO batches (id) VALUES ('x')",
        "UPDATE control SET is_paused = 7"}) {
    std::vector<std::string> outcome = sql.rows(statement);
    ASSERT_EQ(outcome.size(), 1U) << statement;
    EXPECT_EQ(outcome[0].substr(0, 6), "error:") << statement;
  }
  EXPECT_EQ(all_rows(path_), before);
}

TEST_F(LifeTest, lines_in_the_inbox_are_read_in_order_and_taken_with_their_batch) {
  auto queue = open();
  Sql sql(path_);
  sql.rows(R"(INSERT INTO inbox (batch, line) VALUES ('a', 'one'), ('b', 'two'), ('a', 'three'))");
  std::vector<InboxPart> parts = queue->inbox();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "a");
  sql.rows("INSERT INTO inbox (batch, line) VALUES ('a', 'later')");
  std::vector<Queue::InboxLine> lines = queue->inbox_lines(parts[0], 0, 9);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].line, "three");
  NewBatch settings;
  settings.inbox = parts[0];
  submit(*queue, 2, settings);
  EXPECT_EQ(
      sql.rows("SELECT line FROM inbox ORDER BY id"), (std::vector<std::string>{"two", "later"}));
}

TEST_F(LifeTest, pause_and_run_now_are_kept) {
  {
    auto queue = open();
    EXPECT_FALSE(queue->control().is_paused);
    queue->set_paused(true);
    queue->set_run_now_until(123);
  }
  auto queue = open();
  EXPECT_TRUE(queue->control().is_paused);
  EXPECT_EQ(queue->control().run_now_until_ms, 123);
  Sql(path_).rows("UPDATE control SET is_paused = 0");
  EXPECT_FALSE(queue->control().is_paused);
}

}  // namespace
}  // namespace nightsweep
