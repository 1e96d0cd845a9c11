// Cancel, expiry, retry, prune, and what the worker is told to do. Large changes go in slices, each
// a transaction of its own: others wait for one slice at most, and what a killed process leaves is
// finished by the next settle() or prune().

#include <utility>

#include "base/error.h"
#include "queue/hidden_batches.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

// Suspects apart: each half has its index, and neither walks over what has ended.
const char* const kToSettleSql =
    "SELECT job.id, status = 'finalizing' FROM batch INDEXED BY batch_open CROSS JOIN job"
    " INDEXED BY job_waiting ON job.batch = batch.id AND job.state = 'waiting'"
    " AND job.group_limit IS NULL"
    " WHERE ended_ms IS NULL AND status IN ('cancelling', 'finalizing')"
    " UNION ALL SELECT job.id, status = 'finalizing' FROM job INDEXED BY job_suspect CROSS JOIN "
    "batch"
    " ON batch.id = job.batch WHERE job.state = 'waiting' AND job.group_limit IS NOT NULL"
    " AND status IN ('cancelling', 'finalizing') LIMIT ?";

bool SqliteQueue::cancel_batch(const std::string& batch) {
  bool was_open = connection_.write([&] {
    return connection_
               .query(
                   "UPDATE batch SET status = 'cancelling', cancelling_ms = coalesce(cancelling_ms,"
                   " ?) WHERE public_id = ? AND ended_ms IS NULL")
               .with(options_.now_ms())
               .with(batch)
               .run() == 1;
  });
  settle();
  return was_open;
}

std::optional<bool> SqliteQueue::cancel_job(
    const std::string& batch,
    const std::string& custom_id) {
  std::optional<bool> was_open = connection_.write([&]() -> std::optional<bool> {
    std::optional<int64_t> row = row_of("SELECT id FROM batch WHERE public_id = ?", batch);
    if (!row) return std::nullopt;
    Query find = connection_.query("SELECT id FROM job WHERE batch = ? AND custom_id = ?");
    if (!find.with(*row).with(custom_id).step()) return std::nullopt;
    int64_t job = find.integer(0);
    return connection_
               .query(
                   "UPDATE job SET cancel_ms = ? WHERE id = ? AND state IN ('waiting', 'running')")
               .with(options_.now_ms())
               .with(job)
               .run() == 1;
  });
  settle();
  return was_open;
}

// A job that is not running ends without an answer. `state`: "cancelled", "expired" or
// "quarantined".
void SqliteQueue::end_waiting(int64_t job, const std::string& state, const std::string& message) {
  connection_
      .query(
          "INSERT INTO result (job, batch, line, status_code, error_code, error_message,"
          " prompt_tokens, completion_tokens)"
          " SELECT id, batch, line, 500, ?, ?, 0, 0 FROM job WHERE id = ? AND state = 'waiting'")
      .with(state)
      .with(message)
      .with(job)
      .run();
  connection_.query("DELETE FROM checkpoint WHERE job = ?").with(job).run();
  connection_
      .query(
          "UPDATE job SET state = ?, finished_ms = ?, cancel_ms = NULL"
          " WHERE id = ? AND state = 'waiting'")
      .with(std::string(state == "quarantined" ? "failed" : state))
      .with(options_.now_ms())
      .with(job)
      .run();
}

uint64_t SqliteQueue::settle_slice() {
  struct Ending {
    int64_t job;
    bool is_expired;
  };
  std::vector<Ending> endings;
  connection_
      .query(
          "UPDATE batch SET status = 'finalizing' WHERE ended_ms IS NULL AND expires_ms <= ?"
          " AND status = 'in_progress'")
      .with(options_.now_ms())
      .run();
  {
    Query of_batches = connection_.query(kToSettleSql);
    of_batches.with(kSlice);
    while (of_batches.step())
      endings.push_back({of_batches.integer(0), of_batches.integer(1) != 0});
    Query alone = connection_.query(
        "SELECT id FROM job INDEXED BY job_cancelled WHERE cancel_ms IS NOT NULL"
        " AND state = 'waiting' LIMIT ?");
    alone.with(kSlice);
    while (alone.step())
      endings.push_back({alone.integer(0), false});
  }
  for (const Ending& ending : endings) {
    if (ending.is_expired) {
      end_waiting(ending.job, "expired", "the batch expired before this request was answered");
    } else {
      end_waiting(ending.job, "cancelled", "cancelled before this request was answered");
    }
  }
  return endings.size();
}

uint64_t SqliteQueue::settle() {
  uint64_t n_ended = 0;
  for (;;) {
    // Most of the time there is nothing to do, and nothing is locked to find that out.
    bool is_due = connection_.read([&] {
      Query query = connection_.query(
          "SELECT EXISTS (SELECT 1 FROM batch INDEXED BY batch_open WHERE ended_ms IS NULL AND"
          "  (status IN ('cancelling', 'finalizing') AND n_completed + n_failed + n_running < "
          "n_total"
          "   OR status = 'in_progress' AND expires_ms <= ?))"
          " OR EXISTS (SELECT 1 FROM job INDEXED BY job_cancelled"
          "  WHERE cancel_ms IS NOT NULL AND state = 'waiting')");
      query.with(options_.now_ms()).step();
      return query.integer(0) != 0;
    });
    if (!is_due) return n_ended;
    data_version_ = -1;  // what runs of it must stop, although nobody else wrote
    n_ended += connection_.write([&] { return settle_slice(); });
  }
}

uint64_t SqliteQueue::retry(const std::string& batch, const std::vector<std::string>& custom_ids) {
  return connection_.write([&] {
    std::optional<int64_t> row = row_of("SELECT id FROM batch WHERE public_id = ?", batch);
    if (!row) fail(ErrorKind::usage, "{}: no such batch", batch);
    {
      Query taken = connection_.query(
          "SELECT other.public_id FROM batch JOIN batch AS other ON other.key = batch.key"
          " AND other.id <> batch.id AND other.status NOT IN ('cancelling', 'cancelled')"
          " WHERE batch.id = ?");
      if (taken.with(*row).step()) {
        fail(
            ErrorKind::usage, "{}: the same lines were submitted again as {} (retry that one)",
            batch, taken.text(0));
      }
    }
    std::vector<int64_t> jobs;
    if (custom_ids.empty()) {
      // A line that could not be read has no request to try again.
      Query failed = connection_.query(
          "SELECT job.id FROM job JOIN request ON request.job = job.id WHERE batch = ?"
          " AND state IN ('failed', 'cancelled', 'expired') AND body <> ''");
      failed.with(*row);
      while (failed.step())
        jobs.push_back(failed.integer(0));
    }
    for (const std::string& custom_id : custom_ids) {
      Query find = connection_.query(
          "SELECT job.id, state, body = '' FROM job JOIN request ON request.job = job.id"
          " WHERE batch = ? AND custom_id = ?");
      if (!find.with(*row).with(custom_id).step()) {
        fail(ErrorKind::usage, "{}: no job '{}' in it", batch, custom_id);
      }
      std::string state = find.text(1);
      if (state != "failed" && state != "cancelled" && state != "expired") {
        fail(
            ErrorKind::usage, "{}: job '{}': expected one that failed, found it {}", batch,
            custom_id, state);
      }
      if (find.integer(2) != 0) {
        fail(
            ErrorKind::usage,
            "{}: job '{}': its line could not be read (mend it and submit it again)", batch,
            custom_id);
      }
      jobs.push_back(find.integer(0));
    }
    for (int64_t job : jobs) {
      connection_.query("DELETE FROM result WHERE job = ?").with(job).run();
      connection_
          .query(
              "UPDATE job SET state = 'waiting', finished_ms = NULL, strikes = 0,"
              " alone_strikes = 0, group_limit = NULL WHERE id = ?")
          .with(job)
          .run();
    }
    return static_cast<uint64_t>(jobs.size());
  });
}

void SqliteQueue::prune(const std::vector<std::string>& batches) {
  if (!batches.empty()) {
    connection_.write([&] {
      for (const std::string& batch : batches) {
        int64_t n_marked =
            connection_
                .query(
                    "UPDATE batch SET is_hidden = 1, key = NULL, idempotency_key = NULL,"
                    " content = NULL WHERE public_id = ? AND ended_ms IS NOT NULL")
                .with(batch)
                .run();
        if (n_marked == 0) {
          fail(ErrorKind::usage, "{}: it has not ended (nightsweep cancel {} first)", batch, batch);
        }
      }
    });
  }
  delete_hidden_batches(connection_);
}

void SqliteQueue::compact() {
  connection_.read([&] { connection_.run("VACUUM"); });
}

Control SqliteQueue::control() {
  return connection_.read([&] {
    Query query = connection_.query("SELECT is_paused, run_now_until_ms FROM control");
    Control control;
    if (query.step()) {
      control.is_paused = query.integer(0) != 0;
      control.run_now_until_ms = query.integer(1);
    }
    return control;
  });
}

void SqliteQueue::set_paused(bool is_paused) {
  connection_.write(
      [&] { connection_.query("UPDATE control SET is_paused = ?").with(is_paused ? 1 : 0).run(); });
}

void SqliteQueue::set_run_now_until(int64_t until_ms) {
  connection_.write([&] {
    connection_.query("UPDATE control SET run_now_until_ms = ?").with_null_if_zero(until_ms).run();
  });
}

}  // namespace nightsweep
