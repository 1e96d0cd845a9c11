#include "queue/sqlite_batch_writer.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "queue/hidden_batches.h"

namespace nightsweep {

namespace {

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
    : options_(options),
      connection_(path, options.busy_timeout_ms),
      lock_(path),
      public_id_(draw_public_id()) {
  connection_.use_rollback_journal();
}

SqliteBatchWriter::~SqliteBatchWriter() {
  discard();
}

std::vector<BatchWriter::Repeated> SqliteBatchWriter::add(std::vector<NewLine> lines) {
  for (const NewLine& line : lines) {
    if (line.refusal && !line.refusal->is_failure())
      fail(ErrorKind::internal, "line {} is refused without an error", line.job.line);
    if (batch_ == 0) held_bytes_ += line.bytes();
  }
  if (batch_ == 0 && held_bytes_ <= options_.most_held_bytes) return hold(std::move(lines));
  if (batch_ == 0) begin();
  std::vector<Repeated> repeated;
  for (const Taken& taken : store(lines))
    repeated.push_back({std::move(lines[taken.index]), taken.first_line});
  return repeated;
}

std::vector<BatchWriter::Repeated> SqliteBatchWriter::hold(std::vector<NewLine> lines) {
  std::vector<Repeated> repeated;
  for (NewLine& line : lines) {
    auto [known, is_new] = held_ids_.emplace(line.job.custom_id, line.job.line);
    if (!is_new) {
      repeated.push_back({std::move(line), known->second});
      continue;
    }
    ++n_jobs_;
    if (line.refusal) ++n_refused_;
    held_.push_back(std::move(line));
  }
  return repeated;
}

// Makes the hidden batch and puts into it what is held.
void SqliteBatchWriter::begin() {
  delete_hidden_batches(connection_);
  lock_.take(public_id_);
  batch_ = connection_.write([&] { return insert_batch(); });
  n_jobs_ = n_refused_ = 0;
  held_ids_.clear();
  store(std::exchange(held_, {}));
}

std::vector<SqliteBatchWriter::Taken> SqliteBatchWriter::store(const std::vector<NewLine>& lines) {
  let_others_write();
  auto start = std::chrono::steady_clock::now();
  std::vector<Taken> taken = connection_.write([&] {
    Query batch = connection_.query("SELECT 1 FROM batch WHERE id = ? AND status = 'validating'");
    if (!batch.with(batch_).step()) fail_taken_away();
    return insert_lines(batch_, lines);
  });
  n_jobs_ += static_cast<int64_t>(lines.size() - taken.size());
  for (const NewLine& line : lines)
    n_refused_ += line.refusal ? 1 : 0;
  for (const Taken& one : taken)
    n_refused_ -= lines[one.index].refusal ? 1 : 0;
  stored_at_ = std::chrono::steady_clock::now();
  storing_ = stored_at_ - start;
  return taken;
}

// Who waits for the lock looks at it now and then, at most 100 ms apart: between two long
// transactions must be time for a look of one in a few.
void SqliteBatchWriter::let_others_write() const {
  std::this_thread::sleep_until(stored_at_ + storing_ / 4);
}

std::string SqliteBatchWriter::commit(const NewBatch& batch, bool* existed) {
  if (n_jobs_ == 0) fail(ErrorKind::internal, "a batch without lines was committed");
  std::string known = connection_.write([&] {
    std::string found = find_known(batch);
    if (found.empty()) {
      int64_t id = batch_;
      if (id == 0) {
        id = insert_batch();
        insert_lines(id, held_);
      }
      open_batch(id, batch);
    }
    if (batch.inbox) {
      connection_
          .query("DELETE FROM inbox WHERE batch = ? AND model = ? AND priority = ? AND id <= ?")
          .with(batch.inbox->name)
          .with(batch.inbox->model)
          .with(batch.inbox->priority)
          .with(batch.inbox->last_id)
          .run();
    }
    return found;
  });
  *existed = !known.empty();
  if (*existed) discard();
  batch_ = 0;
  return *existed ? known : public_id_;
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

// The row of the batch, which nobody sees yet.
int64_t SqliteBatchWriter::insert_batch() {
  Query insert = connection_.query(
      "INSERT INTO batch (public_id, name, model, endpoint, options, priority, status, created_ms,"
      " is_hidden, n_total) VALUES (?, '', '', '', '', 0, 'validating', ?, 1, 0) RETURNING id");
  insert.with(public_id_).with(options_.now_ms()).step();
  int64_t id = insert.integer(0);
  insert.run();
  return id;
}

// Makes it what people see and workers take.
void SqliteBatchWriter::open_batch(int64_t id, const NewBatch& batch) {
  bool is_over = n_refused_ == n_jobs_;
  bool is_there =
      connection_
          .query(
              "UPDATE batch SET key = ?, idempotency_key = ?, content = ?, name = ?, model = ?,"
              " endpoint = ?, options = ?, priority = ?, expires_ms = ?, status = ?, ended_ms = ?,"
              " n_total = ?, n_failed = ?, is_hidden = 0 WHERE id = ? AND status = 'validating'")
          .with_null_if_empty(batch.key)
          .with_null_if_empty(batch.idempotency_key)
          .with_null_if_empty(batch.content)
          .with(batch.name)
          .with(batch.model)
          .with(batch.endpoint)
          .with(batch.options)
          .with(batch.priority)
          .with_null_if_zero(batch.expires_ms)
          .with(std::string(is_over ? "completed" : "in_progress"))
          .with_null_if_zero(is_over ? options_.now_ms() : 0)
          .with(n_jobs_)
          .with(n_refused_)
          .with(id)
          .run() == 1;
  if (!is_there) fail_taken_away();
}

void SqliteBatchWriter::fail_taken_away() const {
  fail(
      ErrorKind::queue,
      "{}: another process has taken the lines away that were on their way in (is {}.submit still "
      "there? submit them again)",
      connection_.path(), connection_.path());
}

// Takes back what is on its way in.
void SqliteBatchWriter::discard() noexcept {
  if (batch_ == 0) return;
  try {
    connection_.write([&] {
      connection_
          .query(
              "UPDATE batch SET status = 'failed', ended_ms = created_ms WHERE id = ?"
              " AND status = 'validating'")
          .with(batch_)
          .run();
    });
    delete_hidden_batches(connection_);
  } catch (const Error& error) {
    // The next worker or large submit does it.
    log_warning("lines that were not queued still take room in the queue: {}", error.what());
  }
}

std::vector<SqliteBatchWriter::Taken> SqliteBatchWriter::insert_lines(
    int64_t batch,
    const std::vector<NewLine>& lines) {
  std::vector<Taken> taken;
  std::unordered_map<std::string, int64_t> models;
  int64_t last_job = 0;
  {
    Query query = connection_.query("SELECT seq FROM sqlite_sequence WHERE name = 'job'");
    if (query.step()) last_job = query.integer(0);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const NewJob& job = lines[i].job;
    const std::optional<NewResult>& refusal = lines[i].refusal;
    auto [model, is_new] = models.emplace(job.model, 0);
    if (is_new) model->second = model_row(job.model);
    bool is_added =
        connection_
            .query(
                "INSERT INTO job (id, batch, line, custom_id, model, length, state, finished_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (batch, custom_id) DO NOTHING")
            .with(last_job + 1)
            .with(batch)
            .with(job.line)
            .with(job.custom_id)
            .with(model->second)
            .with(job.expected_tokens / kLengthUnit)
            .with(std::string(refusal ? "failed" : "waiting"))
            .with_null_if_zero(refusal ? options_.now_ms() : 0)
            .run() == 1;
    if (!is_added) {
      Query first = connection_.query("SELECT line FROM job WHERE batch = ? AND custom_id = ?");
      first.with(batch).with(job.custom_id).step();
      taken.push_back({.index = i, .first_line = static_cast<uint64_t>(first.integer(0))});
      continue;
    }
    ++last_job;
    connection_.query("INSERT INTO request (job, body) VALUES (?, ?)")
        .with(last_job)
        .with(job.request)
        .run();
    if (!refusal) continue;
    connection_
        .query(
            "INSERT INTO result (job, batch, line, status_code, body, nightsweep, error_code,"
            " error_message, prompt_tokens, completion_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0,"
            " 0)")
        .with(last_job)
        .with(batch)
        .with(job.line)
        .with(refusal->status_code)
        .with_null_if_empty(refusal->body)
        .with_null_if_empty(refusal->nightsweep)
        .with_null_if_empty(refusal->error_code)
        .with_null_if_empty(refusal->error_message)
        .run();
  }
  return taken;
}

int64_t SqliteBatchWriter::model_row(const std::string& name) {
  connection_.query("INSERT INTO model (name) VALUES (?) ON CONFLICT (name) DO NOTHING")
      .with(name)
      .run();
  Query query = connection_.query("SELECT id FROM model WHERE name = ?");
  query.with(name).step();
  return query.integer(0);
}

}  // namespace nightsweep
