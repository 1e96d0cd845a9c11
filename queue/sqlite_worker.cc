// The worker's side of SqliteQueue. Every write names the whole claim; what matches no row is
// stale.

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/error.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

// Rows of `worker` that are kept for people to look at.
constexpr int64_t kMaxWorkerRows = 100;

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

const char* end_state(const NewResult& result) {
  if (result.error_code == "cancelled") return "cancelled";
  if (result.error_code == "expired") return "expired";
  return result.is_failure() ? "failed" : "completed";
}

}  // namespace

std::string claim_sql(bool of_batch, bool of_model) {
  // Without statistics SQLite might take another index and sort a million rows.
  const char* index =
      of_batch ? "job_waiting_by_batch" : (of_model ? "job_waiting_by_model" : "job_waiting");
  return format(
      "UPDATE job SET state = 'running', attempt = attempt + 1, owner = ?, claim_group = ?,"
      " started_ms = ? WHERE id IN (SELECT id FROM job INDEXED BY {} WHERE state = 'waiting'{}{}"
      " ORDER BY priority DESC, id LIMIT ?) RETURNING id, attempt, batch, priority",
      index, of_batch ? " AND batch = ?" : "", of_model ? " AND model = ?" : "");
}

void SqliteQueue::become_worker(const WorkerInfo& self) {
  WorkerInfo info = self;
  if (info.pid == 0) info.pid = ::getpid();
  if (info.host.empty()) info.host = host_name();
  if (info.started_ms == 0) info.started_ms = options_.now_ms();
  lock_.take(info.pid, info.host, info.started_ms);
  refuse_damage_after_crash();
  recover();
  register_owner(info);
}

void SqliteQueue::refuse_damage_after_crash() {
  std::string finding = connection_.read([&]() -> std::string {
    Query last = connection_.query("SELECT ended_ms IS NULL FROM worker ORDER BY id DESC LIMIT 1");
    if (!last.step() || last.integer(0) == 0) return "ok";
    Query check = connection_.query("PRAGMA quick_check(1)");
    check.step();
    return check.text(0);
  });
  if (finding != "ok") {
    fail(
        ErrorKind::queue,
        "{}: the database is damaged: {} (copy the file away, recover it with `sqlite3 {} "
        ".recover`, or restore a backup)",
        path(), finding, path());
  }
}

// With the lock held, whatever says that it is running has no worker any more.
void SqliteQueue::recover() {
  connection_.write([&] {
    struct Group {
      int64_t owner;
      int64_t group;
      bool is_blameless;  // a reboot, or an orderly end
      bool has_progress;
    };
    std::vector<Group> groups;
    Query select = connection_.query(
        "SELECT job.owner, job.claim_group,"
        " coalesce(worker.boot_id <> ? OR worker.ended_ms IS NOT NULL, 0), count(checkpoint.job)"
        " FROM job LEFT JOIN worker ON worker.id = job.owner"
        " LEFT JOIN checkpoint ON checkpoint.job = job.id AND checkpoint.owner = job.owner"
        "   AND checkpoint.claim_group = job.claim_group"
        " WHERE job.state = 'running' GROUP BY job.owner, job.claim_group");
    select.with(options_.boot_id);
    while (select.step()) {
      groups.push_back(
          {select.integer(0), select.integer(1), select.integer(2) != 0, select.integer(3) != 0});
    }
    for (const Group& group : groups) {
      connection_
          .query(
              "UPDATE job SET state = 'waiting', owner = NULL, claim_group = NULL,"
              " attempt = attempt - ?, strikes = strikes + ?"
              " WHERE state = 'running' AND owner = ? AND claim_group = ?")
          .with(group.is_blameless ? 1 : 0)
          .with(!group.is_blameless && !group.has_progress ? 1 : 0)
          .with(group.owner)
          .with(group.group)
          .run();
    }
    connection_.query("UPDATE batch SET n_running = 0 WHERE n_running <> 0").run();
  });
}

void SqliteQueue::register_owner(const WorkerInfo& self) {
  owner_ = connection_.write([&] {
    Query insert = connection_.query(
        "INSERT INTO worker (pid, host, boot_id, model, device, started_ms, seen_ms, progress)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id");
    insert.with(self.pid)
        .with(self.host)
        .with(options_.boot_id)
        .with(self.model)
        .with(self.device)
        .with(self.started_ms)
        .with(options_.now_ms())
        .with_null_if_empty(self.progress);
    insert.step();
    int64_t id = insert.integer(0);
    insert.run();
    connection_.query("DELETE FROM worker WHERE id <= ?").with(id - kMaxWorkerRows).run();
    return id;
  });
}

void SqliteQueue::report_progress(const std::string& progress_json) {
  connection_.write([&] {
    connection_.query("UPDATE worker SET progress = ?, seen_ms = ? WHERE id = ?")
        .with_null_if_empty(progress_json)
        .with(options_.now_ms())
        .with(owner_)
        .run();
  });
}

std::vector<ClaimedJob> SqliteQueue::claim(
    uint32_t n,
    const std::optional<std::string>& batch,
    const std::optional<std::string>& model) {
  if (owner_ == 0) fail(ErrorKind::internal, "claim() before become_worker()");
  if (n == 0) return {};
  int64_t now_ms = options_.now_ms();
  int64_t group = n_claims_ + 1;
  std::vector<ClaimedJob> jobs = connection_.write([&]() -> std::vector<ClaimedJob> {
    struct Row {
      int64_t priority;
      int64_t job;
      uint32_t attempt;
      int64_t batch;
    };
    std::vector<Row> rows;
    BatchChanges changes;
    std::optional<int64_t> batch_row;
    std::optional<int64_t> model_row;
    if (batch) batch_row = row_of("SELECT id FROM batch WHERE public_id = ?", *batch);
    if (model) model_row = row_of("SELECT id FROM model WHERE name = ?", *model);
    if ((batch && !batch_row) || (model && !model_row)) return {};

    {
      Query update = connection_.query(claim_sql(batch.has_value(), model.has_value()));
      update.with(owner_).with(group).with(now_ms);
      if (batch_row) update.with(*batch_row);
      if (model_row) update.with(*model_row);
      update.with(n);
      while (update.step()) {
        rows.push_back(
            {update.integer(3), update.integer(0), static_cast<uint32_t>(update.integer(1)),
             update.integer(2)});
        ++changes[rows.back().batch].n_running;
      }
    }
    for (const auto& [id, change] : changes) {
      connection_
          .query(
              "UPDATE batch SET started_ms = coalesce(started_ms, ?),"
              " status = iif(status = 'validating', 'in_progress', status) WHERE id = ?")
          .with(now_ms)
          .with(id)
          .run();
    }
    apply(changes);

    // RETURNING promises no order.
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.priority != b.priority ? a.priority > b.priority : a.job < b.job;
    });
    std::vector<ClaimedJob> claimed;
    claimed.reserve(rows.size());
    for (const Row& row : rows)
      claimed.push_back(read_claimed(row.job, row.attempt, row.batch));
    for (ClaimedJob& job : claimed)
      job.claim.group = group;
    return claimed;
  });
  n_claims_ = group;
  return jobs;
}

ClaimedJob SqliteQueue::read_claimed(int64_t job, uint32_t attempt, int64_t batch) {
  ClaimedJob claimed;
  claimed.claim.job = job;
  claimed.claim.attempt = attempt;
  Query of_batch = connection_.query("SELECT public_id, created_ms FROM batch WHERE id = ?");
  of_batch.with(batch).step();
  claimed.batch = of_batch.text(0);
  claimed.submitted_ms = of_batch.integer(1);
  Query of_job = connection_.query(
      "SELECT custom_id, line, body, identity, data FROM job JOIN request ON request.job = job.id"
      " LEFT JOIN checkpoint ON checkpoint.job = job.id WHERE job.id = ?");
  if (!of_job.with(job).step()) {
    fail(
        ErrorKind::queue,
        "{}: job {} of {} has no request (the database is damaged: restore a backup)", path(), job,
        claimed.batch);
  }
  claimed.custom_id = of_job.text(0);
  claimed.line = static_cast<uint64_t>(of_job.integer(1));
  claimed.request = of_job.text(2);
  claimed.checkpoint_identity = of_job.text(3);
  claimed.checkpoint = of_job.text(4);
  return claimed;
}

std::vector<Claim> SqliteQueue::save(
    const std::vector<Checkpoint>& checkpoints,
    const std::vector<Completion>& completions) {
  if (checkpoints.empty() && completions.empty()) return {};
  return connection_.write([&] {
    std::vector<Claim> stale;
    BatchChanges changes;
    for (const Checkpoint& checkpoint : checkpoints) {
      if (!write_checkpoint(checkpoint)) stale.push_back(checkpoint.claim);
    }
    for (const Completion& completion : completions) {
      if (!write_completion(completion, &changes)) stale.push_back(completion.claim);
    }
    apply(changes);
    return stale;
  });
}

bool SqliteQueue::write_checkpoint(const Checkpoint& checkpoint) {
  return connection_
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
}

bool SqliteQueue::write_completion(const Completion& completion, BatchChanges* changes) {
  const Claim& claim = completion.claim;
  const NewResult& result = completion.result;
  int64_t batch = 0;
  int64_t line = 0;
  {
    Query end = connection_.query(
        "UPDATE job SET state = ?, owner = NULL, claim_group = NULL, finished_ms = ?"
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
  BatchChange& change = (*changes)[batch];
  --change.n_running;
  ++(result.is_failure() ? change.n_failed : change.n_completed);
  change.prompt_tokens += static_cast<int64_t>(result.prompt_tokens);
  change.completion_tokens += static_cast<int64_t>(result.completion_tokens);
  return true;
}

void SqliteQueue::apply(const BatchChanges& changes) {
  for (const auto& [batch, change] : changes) {
    connection_
        .query(
            "UPDATE batch SET n_running = n_running + ?, n_completed = n_completed + ?,"
            " n_failed = n_failed + ?, prompt_tokens = prompt_tokens + ?,"
            " completion_tokens = completion_tokens + ? WHERE id = ?")
        .with(change.n_running)
        .with(change.n_completed)
        .with(change.n_failed)
        .with(change.prompt_tokens)
        .with(change.completion_tokens)
        .with(batch)
        .run();
    connection_
        .query(
            "UPDATE batch SET ended_ms = ?,"
            " status = iif(status = 'cancelling', 'cancelled', 'completed')"
            " WHERE id = ? AND ended_ms IS NULL AND n_completed + n_failed = n_total")
        .with(options_.now_ms())
        .with(batch)
        .run();
  }
}

void SqliteQueue::release(const std::vector<Claim>& claims) {
  if (claims.empty()) return;
  connection_.write([&] {
    BatchChanges changes;
    for (const Claim& claim : claims) {
      Query update = connection_.query(
          "UPDATE job SET state = 'waiting', owner = NULL, claim_group = NULL,"
          " attempt = attempt - 1"
          " WHERE id = ? AND attempt = ? AND owner = ? AND claim_group = ? AND state = 'running'"
          " RETURNING batch");
      update.with(claim.job).with(claim.attempt).with(owner_).with(claim.group);
      while (update.step())
        --changes[update.integer(0)].n_running;
    }
    apply(changes);
  });
}

std::vector<Claim> SqliteQueue::cancelled(const std::vector<Claim>& claims) {
  return connection_.read([&] {
    std::vector<Claim> found;
    for (const Claim& claim : claims) {
      Query query = connection_.query(
          "SELECT 1 FROM job JOIN batch ON batch.id = job.batch"
          " WHERE job.id = ? AND attempt = ? AND owner = ? AND claim_group = ?"
          " AND state = 'running' AND (cancel_ms IS NOT NULL OR status = 'cancelling')");
      query.with(claim.job).with(claim.attempt).with(owner_).with(claim.group);
      if (query.step()) found.push_back(claim);
    }
    return found;
  });
}

}  // namespace nightsweep
