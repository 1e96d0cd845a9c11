#include "queue/sqlite_queue.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "queue/file_system.h"
#include "queue/schema.h"
#include "queue/sqlite_batch_writer.h"

namespace nightsweep {

namespace {

const char* const kBatchColumns =
    "public_id, name, status, model, endpoint, options, coalesce(key, ''), created_ms, started_ms, "
    "ended_ms, n_total, n_completed, n_failed, n_running, prompt_tokens, completion_tokens, "
    "cancelling_ms, expires_ms, priority";

BatchInfo read_batch(const Query& row) {
  BatchInfo info;
  info.id = row.text(0);
  info.name = row.text(1);
  info.status = row.text(2);
  info.model = row.text(3);
  info.endpoint = row.text(4);
  info.options = row.text(5);
  info.key = row.text(6);
  info.created_ms = row.integer(7);
  info.started_ms = row.integer(8);
  info.ended_ms = row.integer(9);
  info.counts.total = static_cast<uint64_t>(row.integer(10));
  info.counts.completed = static_cast<uint64_t>(row.integer(11));
  info.counts.failed = static_cast<uint64_t>(row.integer(12));
  info.counts.running = static_cast<uint64_t>(row.integer(13));
  info.prompt_tokens = static_cast<uint64_t>(row.integer(14));
  info.completion_tokens = static_cast<uint64_t>(row.integer(15));
  info.cancelling_ms = row.integer(16);
  info.expires_ms = row.integer(17);
  info.priority = static_cast<int32_t>(row.integer(18));
  return info;
}

StoredResult read_result(const Query& row) {
  StoredResult stored;
  stored.job = row.integer(0);
  stored.line = static_cast<uint64_t>(row.integer(1));
  stored.sequence = static_cast<uint64_t>(row.integer(2));
  stored.custom_id = row.text(3);
  stored.result.status_code = static_cast<int>(row.integer(4));
  stored.result.body = row.text(5);
  stored.result.nightsweep = row.text(6);
  stored.result.error_code = row.text(7);
  stored.result.error_message = row.text(8);
  stored.result.prompt_tokens = static_cast<uint64_t>(row.integer(9));
  stored.result.completion_tokens = static_cast<uint64_t>(row.integer(10));
  return stored;
}

const char* const kResultsByLine =
    "SELECT result.job, result.line, sequence, custom_id, status_code, body, nightsweep,"
    " error_code, error_message, prompt_tokens, completion_tokens"
    " FROM result JOIN job ON job.id = result.job"
    " WHERE result.batch = (SELECT id FROM batch WHERE public_id = ?) AND result.line > ?"
    " ORDER BY result.line LIMIT ?";
const char* const kResultsByFinish =
    "SELECT result.job, result.line, sequence, custom_id, status_code, body, nightsweep,"
    " error_code, error_message, prompt_tokens, completion_tokens"
    " FROM result INDEXED BY result_by_batch JOIN job ON job.id = result.job"
    " WHERE result.batch = (SELECT id FROM batch WHERE public_id = ?) AND sequence > ?"
    " ORDER BY sequence LIMIT ?";

std::string kernel_boot_id() {
  std::string id = read_whole_file("/proc/sys/kernel/random/boot_id", ErrorKind::queue);
  while (!id.empty() && id.back() == '\n')
    id.pop_back();
  return id;
}

QueueOptions with_defaults(QueueOptions options) {
  if (!options.now_ms) options.now_ms = unix_ms;
  if (options.boot_id.empty()) options.boot_id = kernel_boot_id();
  return options;
}

// The path, when the file can be there.
std::string checked_place(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_errno(ErrorKind::queue, error.value(), folder.string());
  if (std::filesystem::is_directory(path, error)) {
    fail(
        ErrorKind::queue,
        "{}: expected a file, found a folder (name a file in it, such as {}/queue.db)", path, path);
  }
  refuse_shared_file_system(folder.string());
  return path;
}

}  // namespace

std::unique_ptr<Queue> Queue::open(const std::string& path, QueueOptions options) {
  return std::make_unique<SqliteQueue>(path, std::move(options));
}

std::unique_ptr<Queue> Queue::open_existing(const std::string& path, QueueOptions options) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 && (errno == ENOENT || errno == ENOTDIR)) return nullptr;
  return open(path, std::move(options));
}

SqliteQueue::SqliteQueue(const std::string& path, QueueOptions options)
    : options_(with_defaults(std::move(options))),
      connection_(checked_place(path), options_.busy_timeout_ms),
      lock_(path) {
  prepare_schema(connection_, options_.now_ms(), [this](int64_t version) {
    if (lock_.is_held()) {
      fail(
          ErrorKind::queue,
          "{}: a worker of an older Nightsweep is at work on it (stop it; this version then moves "
          "the queue up)",
          this->path());
    }
    std::string copy = format("{}.schema-{}", this->path(), version);
    // One that is there was made by an earlier try, which changed nothing.
    if (!std::filesystem::exists(copy)) backup(copy);
    log_info("{}: moved up from schema {}; the old one is kept as {}", this->path(), version, copy);
  });
}

SqliteQueue::~SqliteQueue() {
  if (owner_ == 0) return;
  try {
    connection_.write([&] {
      connection_.query("UPDATE worker SET ended_ms = ? WHERE id = ?")
          .with(options_.now_ms())
          .with(owner_)
          .run();
    });
  } catch (const Error& error) {
    // The next worker checks the file: slower, and safe.
    log_warning("the queue could not be left in order: {}", error.what());
  }
  lock_.end_in_order();
}

std::unique_ptr<BatchWriter> SqliteQueue::new_batch() {
  return std::make_unique<SqliteBatchWriter>(path(), options_);
}

std::optional<int64_t> SqliteQueue::row_of(const char* sql, const std::string& name) {
  Query query = connection_.query(sql);
  if (!query.with(name).step()) return std::nullopt;
  return query.integer(0);
}

std::optional<BatchInfo> SqliteQueue::batch(const std::string& id) {
  return connection_.read([&]() -> std::optional<BatchInfo> {
    Query query = connection_.query(
        format("SELECT {} FROM batch WHERE public_id = ? AND is_hidden = 0", kBatchColumns));
    if (!query.with(id).step()) return std::nullopt;
    return read_batch(query);
  });
}

std::optional<std::string> SqliteQueue::find_batch(const std::string& id_or_prefix) {
  if (id_or_prefix.empty()) return std::nullopt;
  return connection_.read([&]() -> std::optional<std::string> {
    if (id_or_prefix == "last") {
      Query query = connection_.query(
          "SELECT public_id FROM batch WHERE is_hidden = 0 ORDER BY id DESC LIMIT 1");
      if (!query.step()) return std::nullopt;
      return query.text(0);
    }
    Query query = connection_.query(
        "SELECT public_id FROM batch WHERE is_hidden = 0 AND"
        " (substr(public_id, 1, length(?1)) = ?1 OR substr(public_id, 7, length(?1)) = ?1) LIMIT "
        "2");
    if (!query.with(id_or_prefix).step()) return std::nullopt;
    std::string id = query.text(0);
    if (query.step()) return std::nullopt;
    return id;
  });
}

std::vector<BatchInfo> SqliteQueue::select_batches(const std::string& condition, int64_t value) {
  return connection_.read([&] {
    std::vector<BatchInfo> all;
    Query query = connection_.query(
        format("SELECT {} FROM batch WHERE is_hidden = 0 {}", kBatchColumns, condition));
    query.with(value);
    while (query.step())
      all.push_back(read_batch(query));
    return all;
  });
}

std::vector<BatchInfo> SqliteQueue::batches(uint32_t limit) {
  return select_batches("ORDER BY id DESC LIMIT ?", limit);
}

std::vector<BatchInfo> SqliteQueue::batches_ended_before(int64_t ended_ms) {
  return select_batches("AND ended_ms < ? ORDER BY id", ended_ms);
}

std::optional<BatchInfo> SqliteQueue::batch_of_content(const std::string& content) {
  return connection_.read([&]() -> std::optional<BatchInfo> {
    Query query = connection_.query(format(
        "SELECT {} FROM batch WHERE content = ? AND is_hidden = 0"
        " AND status NOT IN ('cancelling', 'cancelled') ORDER BY id DESC LIMIT 1",
        kBatchColumns));
    if (!query.with(content).step()) return std::nullopt;
    return read_batch(query);
  });
}

std::vector<StoredResult>
SqliteQueue::results(const char* sql, const std::string& batch, uint64_t after, uint32_t limit) {
  return connection_.read([&] {
    std::vector<StoredResult> page;
    Query query = connection_.query(sql);
    query.with(batch).with(after).with(limit);
    while (query.step())
      page.push_back(read_result(query));
    return page;
  });
}

std::vector<StoredResult>
SqliteQueue::results_by_line(const std::string& batch, uint64_t after_line, uint32_t limit) {
  return results(kResultsByLine, batch, after_line, limit);
}

std::vector<StoredResult>
SqliteQueue::results_by_finish(const std::string& batch, uint64_t after_sequence, uint32_t limit) {
  return results(kResultsByFinish, batch, after_sequence, limit);
}

std::optional<WorkerInfo> SqliteQueue::worker() {
  std::optional<WorkerInfo> last = connection_.read([&]() -> std::optional<WorkerInfo> {
    Query query = connection_.query(
        "SELECT pid, host, model, device, started_ms, seen_ms, progress FROM worker"
        " ORDER BY id DESC LIMIT 1");
    if (!query.step()) return std::nullopt;
    WorkerInfo info;
    info.pid = query.integer(0);
    info.host = query.text(1);
    info.model = query.text(2);
    info.device = query.text(3);
    info.started_ms = query.integer(4);
    info.seen_ms = query.integer(5);
    info.progress = query.text(6);
    return info;
  });
  if (last) last->is_alive = lock_.is_held();
  return last;
}

JobCounts SqliteQueue::job_counts() {
  return connection_.read([&] {
    Query query = connection_.query(
        "SELECT sum(n_total - n_running - n_completed - n_failed), sum(n_running),"
        " sum(n_completed), sum(n_failed) FROM batch WHERE is_hidden = 0");
    query.step();
    auto count = [&](int column) { return static_cast<uint64_t>(query.integer(column)); };
    return JobCounts{
        .waiting = count(0), .running = count(1), .completed = count(2), .failed = count(3)};
  });
}

uint64_t SqliteQueue::n_unfinished(const std::optional<std::string>& batch) {
  return connection_.read([&] {
    Query query = connection_.query(
        batch ? "SELECT sum(n_total - n_completed - n_failed) FROM batch WHERE public_id = ?"
              : "SELECT sum(n_total - n_completed - n_failed) FROM batch WHERE ended_ms IS NULL");
    if (batch) query.with(*batch);
    query.step();
    return static_cast<uint64_t>(query.integer(0));
  });
}

}  // namespace nightsweep
