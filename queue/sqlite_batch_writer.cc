#include "queue/sqlite_batch_writer.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "base/error.h"

namespace nightsweep {

namespace {

const char* const kIncoming =
    "CREATE TEMP TABLE incoming ("
    " n INTEGER PRIMARY KEY, line INTEGER NOT NULL, custom_id TEXT NOT NULL UNIQUE,"
    " model TEXT NOT NULL, request TEXT NOT NULL, length INTEGER NOT NULL,"
    // NULL: not refused
    " status_code INTEGER, body TEXT, nightsweep TEXT, error_code TEXT, error_message TEXT)";

// 120 random bits, as letters and digits that are safe to type and to double-click.
std::string draw_public_id() {
  constexpr char kDigits[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::array<unsigned char, 24> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail_errno(ErrorKind::internal, errno, "getrandom");
  }
  std::string id = "batch_";
  for (unsigned char byte : bytes)
    id += kDigits[byte % 32];
  return id;
}

}  // namespace

SqliteBatchWriter::SqliteBatchWriter(const std::string& path, const QueueOptions& options)
    : options_(options), connection_(path, options.busy_timeout_ms) {
  connection_.use_rollback_journal();
  connection_.read([&] {
    connection_.run(kIncoming);
    // Until commit() nothing but the temporary table is touched: this holds no lock on the queue.
    connection_.run("BEGIN");
  });
}

bool SqliteBatchWriter::add(const NewJob& job, uint64_t* first_line) {
  return insert(job, nullptr, first_line);
}

bool SqliteBatchWriter::add_refused(
    const NewJob& job,
    const NewResult& result,
    uint64_t* first_line) {
  if (!result.is_failure())
    fail(ErrorKind::internal, "line {} is refused without an error", job.line);
  return insert(job, &result, first_line);
}

bool SqliteBatchWriter::insert(const NewJob& job, const NewResult* refusal, uint64_t* first_line) {
  if (job.line <= last_line_) {
    fail(ErrorKind::internal, "line {} comes after line {} of a batch", job.line, last_line_);
  }
  bool is_new = connection_.read([&] {
    Query query = connection_.query(
        "INSERT INTO incoming (n, line, custom_id, model, request, length, status_code, body,"
        " nightsweep, error_code, error_message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (custom_id) DO NOTHING");
    query.with(n_jobs_ + 1).with(job.line).with(job.custom_id).with(job.model).with(job.request);
    query.with(job.expected_tokens / kLengthUnit);
    if (refusal != nullptr) {
      query.with(refusal->status_code)
          .with_null_if_empty(refusal->body)
          .with_null_if_empty(refusal->nightsweep)
          .with_null_if_empty(refusal->error_code)
          .with_null_if_empty(refusal->error_message);
    }
    return query.run() == 1;
  });
  if (!is_new) {
    *first_line = connection_.read([&] {
      Query query = connection_.query("SELECT line FROM incoming WHERE custom_id = ?");
      query.with(job.custom_id).step();
      return static_cast<uint64_t>(query.integer(0));
    });
    return false;
  }
  ++n_jobs_;
  if (refusal != nullptr) ++n_refused_;
  last_line_ = job.line;
  return true;
}

std::string SqliteBatchWriter::commit(const NewBatch& batch, bool* existed) {
  if (n_jobs_ == 0) fail(ErrorKind::internal, "a batch without lines was committed");
  connection_.read([&] { connection_.run("COMMIT"); });
  std::string new_id = draw_public_id();
  std::string id = connection_.write([&] {
    std::string known = find_known(batch);
    if (known.empty()) copy_jobs(insert_batch(batch, new_id), batch);
    if (batch.inbox) {
      connection_
          .query("DELETE FROM inbox WHERE batch = ? AND model = ? AND priority = ? AND id <= ?")
          .with(batch.inbox->name)
          .with(batch.inbox->model)
          .with(batch.inbox->priority)
          .with(batch.inbox->last_id)
          .run();
    }
    return known.empty() ? new_id : known;
  });
  *existed = id != new_id;
  return id;
}

// The batch that this one is; empty: none is there.
std::string SqliteBatchWriter::find_known(const NewBatch& batch) {
  if (!batch.key.empty()) {
    Query query = connection_.query(
        "SELECT public_id FROM batch WHERE key = ? AND status NOT IN ('cancelling', 'cancelled')");
    if (query.with(batch.key).step()) return query.text(0);
  }
  if (batch.idempotency_key.empty()) return {};
  Query query = connection_.query(
      "SELECT public_id, coalesce(content, '') FROM batch WHERE idempotency_key = ?");
  if (!query.with(batch.idempotency_key).step()) return {};
  std::string id = query.text(0);
  if (query.text(1) != batch.content) {
    fail(
        ErrorKind::usage,
        "--idempotency-key {}: {} has this key, with other lines or parameters (give another key; "
        "nothing was queued)",
        batch.idempotency_key, id);
  }
  return id;
}

int64_t SqliteBatchWriter::insert_batch(const NewBatch& batch, const std::string& public_id) {
  int64_t now_ms = options_.now_ms();
  bool is_over = n_refused_ == n_jobs_;
  Query insert = connection_.query(
      "INSERT INTO batch (public_id, key, idempotency_key, content, name, model, endpoint, options,"
      " priority, status, created_ms, expires_ms, ended_ms, n_total, n_failed)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, iif(?, ?, NULL), ?, ?) RETURNING id");
  insert.with(public_id)
      .with_null_if_empty(batch.key)
      .with_null_if_empty(batch.idempotency_key)
      .with_null_if_empty(batch.content)
      .with(batch.name)
      .with(batch.model)
      .with(batch.endpoint)
      .with(batch.options)
      .with(batch.priority)
      .with(std::string(is_over ? "completed" : "in_progress"))
      .with(now_ms)
      .with_null_if_zero(batch.expires_ms)
      .with(is_over ? 1 : 0)
      .with(now_ms)
      .with(n_jobs_)
      .with(n_refused_);
  insert.step();
  int64_t id = insert.integer(0);
  insert.run();
  return id;
}

void SqliteBatchWriter::copy_jobs(int64_t batch, const NewBatch& settings) {
  connection_
      .query(
          "INSERT INTO model (name) SELECT DISTINCT iif(model = '', ?, model) FROM incoming"
          " WHERE true ON CONFLICT (name) DO NOTHING")
      .with(settings.model)
      .run();
  int64_t last_job = 0;
  {
    Query query = connection_.query("SELECT seq FROM sqlite_sequence WHERE name = 'job'");
    if (query.step()) last_job = query.integer(0);
  }
  connection_
      .query(
          "INSERT INTO job (id, batch, line, custom_id, model, length, state, finished_ms)"
          " SELECT ? + n, ?, line, custom_id, model.id, length,"
          "   iif(status_code IS NULL, 'waiting', 'failed'), iif(status_code IS NULL, NULL, ?)"
          " FROM incoming CROSS JOIN model ON model.name = iif(model = '', ?, incoming.model)"
          " ORDER BY n")
      .with(last_job)
      .with(batch)
      .with(options_.now_ms())
      .with(settings.model)
      .run();
  connection_
      .query("INSERT INTO request (job, body) SELECT ? + n, request FROM incoming ORDER BY n")
      .with(last_job)
      .run();
  if (n_refused_ == 0) return;
  connection_
      .query(
          "INSERT INTO result (job, batch, line, status_code, body, nightsweep, error_code,"
          " error_message, prompt_tokens, completion_tokens)"
          " SELECT ? + n, ?, line, status_code, body, nightsweep, error_code, error_message, 0, 0"
          " FROM incoming WHERE status_code IS NOT NULL ORDER BY n")
      .with(last_job)
      .with(batch)
      .run();
}

}  // namespace nightsweep
