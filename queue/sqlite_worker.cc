// The worker's side of SqliteQueue. Every write names the whole claim; what matches no row is
// stale.

#include <utility>

#include "base/error.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

const char* end_state(const NewResult& result) {
  if (result.error_code == "cancelled") return "cancelled";
  if (result.error_code == "expired") return "expired";
  return result.is_failure() ? "failed" : "completed";
}

}  // namespace

void SqliteQueue::report_progress(const std::string& progress_json) {
  connection_.write([&] {
    connection_.query("UPDATE worker SET progress = ?, seen_ms = ? WHERE id = ?")
        .with_null_if_empty(progress_json)
        .with(options_.now_ms())
        .with(owner_)
        .run();
  });
}

std::vector<Claim> SqliteQueue::save(
    const std::vector<Checkpoint>& checkpoints,
    const std::vector<Completion>& completions) {
  if (checkpoints.empty() && completions.empty()) return {};
  // Known only once the transaction has been committed.
  std::set<int64_t> gained;
  std::vector<Claim> all_stale = connection_.write([&] {
    gained.clear();
    std::vector<Claim> stale;
    auto note = [&](const Claim& claim, bool was_written) {
      if (!was_written) {
        stale.push_back(claim);
      } else if (!gained_groups_.contains(claim.group) && gained.insert(claim.group).second) {
        connection_.query("INSERT OR IGNORE INTO gain (owner, claim_group) VALUES (?, ?)")
            .with(owner_)
            .with(claim.group)
            .run();
      }
    };
    for (const Checkpoint& checkpoint : checkpoints)
      note(checkpoint.claim, write_checkpoint(checkpoint));
    for (const Completion& completion : completions)
      note(completion.claim, write_completion(completion));
    return stale;
  });
  gained_groups_.merge(gained);
  return all_stale;
}

bool SqliteQueue::write_checkpoint(const Checkpoint& checkpoint) {
  bool is_ours =
      connection_
          .query(
              "INSERT INTO checkpoint (job, identity, data, owner, claim_group, saved_ms)"
              " SELECT id, ?, ?, owner, claim_group, ? FROM job WHERE id = ? AND attempt = ?"
              " AND owner = ? AND claim_group = ? AND state = 'running'"
              " ON CONFLICT (job) DO UPDATE SET identity = excluded.identity,"
              " data = excluded.data, owner = excluded.owner,"
              " claim_group = excluded.claim_group, saved_ms = excluded.saved_ms")
          .with(checkpoint.identity)
          .with_blob(checkpoint.data)
          .with(options_.now_ms())
          .with(checkpoint.claim.job)
          .with(checkpoint.claim.attempt)
          .with(owner_)
          .with(checkpoint.claim.group)
          .run() == 1;
  if (!is_ours) return false;
  connection_
      .query(
          "UPDATE job SET group_limit = NULL, strikes = 0, alone_strikes = 0, runs_alone = 0"
          " WHERE id = ? AND group_limit IS NOT NULL")
      .with(checkpoint.claim.job)
      .run();
  return true;
}

bool SqliteQueue::write_completion(const Completion& completion) {
  const Claim& claim = completion.claim;
  const NewResult& result = completion.result;
  int64_t batch = 0;
  int64_t line = 0;
  {
    Query end = connection_.query(
        "UPDATE job SET state = ?, owner = NULL, claim_group = NULL, finished_ms = ?,"
        " cancel_ms = NULL, group_limit = NULL, runs_alone = 0"
        " WHERE id = ? AND attempt = ? AND owner = ? AND claim_group = ? AND state = 'running'"
        " RETURNING batch, line");
    end.with(std::string(end_state(result)))
        .with(options_.now_ms())
        .with(claim.job)
        .with(claim.attempt)
        .with(owner_)
        .with(claim.group);
    if (!end.step()) return false;
    batch = end.integer(0);
    line = end.integer(1);
    end.run();
  }
  connection_
      .query(
          "INSERT INTO result (job, batch, line, status_code, body, nightsweep, error_code,"
          " error_message, prompt_tokens, completion_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .with(claim.job)
      .with(batch)
      .with(line)
      .with(result.status_code)
      .with_null_if_empty(result.body)
      .with_null_if_empty(result.nightsweep)
      .with_null_if_empty(result.error_code)
      .with_null_if_empty(result.error_message)
      .with(result.prompt_tokens)
      .with(result.completion_tokens)
      .run();
  connection_.query("DELETE FROM checkpoint WHERE job = ?").with(claim.job).run();
  return true;
}

void SqliteQueue::release(const std::vector<Claim>& claims) {
  if (claims.empty()) return;
  connection_.write([&] {
    for (const Claim& claim : claims) {
      connection_
          .query(
              "UPDATE job SET state = 'waiting', owner = NULL, claim_group = NULL, runs_alone = 0,"
              " attempt = attempt - 1"
              " WHERE id = ? AND attempt = ? AND owner = ? AND claim_group = ? AND state = "
              "'running'")
          .with(claim.job)
          .with(claim.attempt)
          .with(owner_)
          .with(claim.group)
          .run();
    }
  });
}

bool SqliteQueue::has_changed() {
  int64_t version = connection_.read([&] {
    Query query = connection_.query("PRAGMA data_version");
    query.step();
    return query.integer(0);
  });
  return std::exchange(data_version_, version) != version;
}

std::vector<StoppedClaim> SqliteQueue::stopped(const std::vector<Claim>& claims) {
  return connection_.read([&] {
    std::vector<StoppedClaim> found;
    for (const Claim& claim : claims) {
      Query query = connection_.query(
          "SELECT status = 'finalizing' AND cancel_ms IS NULL FROM job JOIN batch"
          " ON batch.id = job.batch"
          " WHERE job.id = ? AND attempt = ? AND owner = ? AND claim_group = ?"
          " AND state = 'running'"
          " AND (cancel_ms IS NOT NULL OR status IN ('cancelling', 'finalizing'))");
      query.with(claim.job).with(claim.attempt).with(owner_).with(claim.group);
      if (query.step()) found.push_back({claim, query.integer(0) != 0 ? "expired" : "cancelled"});
    }
    return found;
  });
}

}  // namespace nightsweep
