// A queue in a folder of its own, a clock that the test sets, and raw SQL beside it.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

// A connection that knows nothing of the code under test.
class Sql {
 public:
  explicit Sql(const std::string& path) { sqlite3_open(path.c_str(), &handle_); }
  ~Sql() { sqlite3_close(handle_); }
  Sql(const Sql&) = delete;
  Sql& operator=(const Sql&) = delete;

  // All rows; columns joined by "|". An error is the only row.
  std::vector<std::string> rows(const std::string& sql) {
    std::vector<std::string> all;
    char* error = nullptr;
    auto append = [](void* out, int n, char** values, char**) {
      std::string row;
      for (int i = 0; i < n; ++i) {
        if (i > 0) row += '|';
        row += values[i] != nullptr ? values[i] : "";
      }
      static_cast<std::vector<std::string>*>(out)->push_back(row);
      return 0;
    };
    if (sqlite3_exec(handle_, sql.c_str(), append, &all, &error) != SQLITE_OK) {
      all = {std::string("error: ") + error};
    }
    sqlite3_free(error);
    return all;
  }
  std::string one(const std::string& sql) {
    std::vector<std::string> all = rows(sql);
    return all.empty() ? "" : all[0];
  }
  std::string plan(const std::string& sql) {
    std::string text;
    for (const std::string& row : rows("EXPLAIN QUERY PLAN " + sql))
      text += row + "\n";
    return text;
  }

 private:
  sqlite3* handle_ = nullptr;
};

class QueueTest : public testing::Test {
 protected:
  // In memory where that can be: hundreds of syncs would be most of the time of these tests.
  QueueTest()
      : QueueTest(
            ::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                            : std::filesystem::temp_directory_path().string()) {}
  explicit QueueTest(const std::string& parent) {
    std::string name = parent + "/nightsweep.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/queue.db";
  }
  ~QueueTest() override { std::filesystem::remove_all(folder_); }

  QueueOptions options() {
    QueueOptions options;
    options.now_ms = [this] { return now_ms_; };
    options.boot_id = boot_id_;
    options.busy_timeout_ms = busy_timeout_ms_;
    options.most_held_bytes = most_held_bytes_;
    return options;
  }
  std::unique_ptr<SqliteQueue> open() { return std::make_unique<SqliteQueue>(path_, options()); }
  std::unique_ptr<SqliteQueue> open_worker() {
    std::unique_ptr<SqliteQueue> queue = open();
    queue->become_worker({});
    return queue;
  }

  static NewJob job(uint64_t line, const std::string& model = "") {
    return {line, format("id-{}", line), model, format(R"({{"line":{}}})", line)};
  }
  // The line that has the id already; none: it was added.
  static std::optional<uint64_t> add(BatchWriter& writer, NewLine line) {
    std::vector<NewLine> lines;
    lines.push_back(std::move(line));
    std::vector<BatchWriter::Repeated> repeated = writer.add(std::move(lines));
    if (repeated.empty()) return std::nullopt;
    return repeated[0].first_line;
  }
  static std::string
  submit(Queue& queue, uint64_t n, const NewBatch& settings = {}, const std::string& model = "") {
    std::unique_ptr<BatchWriter> writer = queue.new_batch();
    std::vector<NewLine> lines;
    for (uint64_t line = 1; line <= n; ++line)
      lines.push_back({.job = job(line, model), .refusal = {}});
    writer->add(std::move(lines));
    bool existed = false;
    return writer->commit(settings, &existed);
  }
  static NewBatch keyed(const std::string& key) {
    NewBatch batch;
    batch.key = key;
    return batch;
  }
  static NewBatch of_priority(int32_t priority) {
    NewBatch batch;
    batch.priority = priority;
    return batch;
  }
  static NewResult answer(const std::string& text = "hello") {
    NewResult result;
    result.body = format(R"({{"text":"{}"}})", text);
    result.nightsweep = R"({"tokens_per_s":12.5})";
    result.prompt_tokens = 3;
    result.completion_tokens = 5;
    return result;
  }
  static NewResult refusal() {
    NewResult result;
    result.status_code = 400;
    result.body = R"({"error":{"message":"body.n: expected 1, found 0"}})";
    return result;
  }
  static std::vector<Completion> completions(const std::vector<ClaimedJob>& jobs) {
    std::vector<Completion> all;
    for (const ClaimedJob& claimed : jobs)
      all.push_back({claimed.claim, answer()});
    return all;
  }

  // Nothing of the counters may differ from what counting finds.
  static void expect_counters_agree(const std::string& path) {
    Sql sql(path);
    EXPECT_EQ(
        sql.one(
            "SELECT count(*) FROM batch WHERE is_hidden = 0 AND ("
            " n_total <> (SELECT count(*) FROM job WHERE batch = batch.id)"
            " OR n_running <> (SELECT count(*) FROM job WHERE batch = batch.id AND state = "
            "'running')"
            " OR n_completed <> (SELECT count(*) FROM job WHERE batch = batch.id"
            "                    AND state = 'completed')"
            " OR n_failed <> (SELECT count(*) FROM job WHERE batch = batch.id"
            "                 AND state IN ('failed', 'cancelled', 'expired'))"
            " OR prompt_tokens <> (SELECT coalesce(sum(prompt_tokens), 0) FROM result"
            "                      WHERE result.batch = batch.id)"
            " OR completion_tokens <> (SELECT coalesce(sum(completion_tokens), 0) FROM result"
            "                          WHERE result.batch = batch.id)"
            " OR (ended_ms IS NULL) <> (n_completed + n_failed < n_total)"
            " OR (status IN ('in_progress', 'cancelling', 'finalizing')) <> (ended_ms IS NULL))"),
        "0");
    EXPECT_EQ(
        sql.one("SELECT count(*) FROM job LEFT JOIN result ON result.job = job.id"
                " WHERE (result.job IS NULL) <> (state IN ('waiting', 'running'))"),
        "0");
    EXPECT_EQ(sql.one("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(sql.one("SELECT count(*) FROM pragma_foreign_key_check"), "0");
  }
  // Every row of every table.
  static std::vector<std::string> all_rows(const std::string& path) {
    Sql sql(path);
    std::vector<std::string> all;
    for (const char* table :
         {"meta", "model", "batch", "job", "request", "checkpoint", "result", "worker", "gain",
          "inbox", "control", "sweep"}) {
      for (const std::string& row : sql.rows(format("SELECT * FROM {}", table))) {
        all.push_back(format("{}: {}", table, row));
      }
    }
    return all;
  }

  // Runs `body` in a child that is killed as by SIGKILL at its end, or earlier by kill().
  static pid_t start_child(const std::function<void()>& body) {
    pid_t pid = ::fork();
    if (pid == 0) {
      try {
        body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        ::_exit(1);
      }
      ::kill(::getpid(), SIGKILL);
    }
    return pid;
  }
  static void wait_for(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child failed before it was killed";
  }
  static void in_killed_child(const std::function<void()>& body) { wait_for(start_child(body)); }

  template <typename Body>
  static std::optional<Error> error_of(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }
  static void
  expect_error(const std::optional<Error>& error, ErrorKind kind, const std::string& part) {
    ASSERT_TRUE(error.has_value()) << "expected an error with: " << part;
    EXPECT_EQ(static_cast<int>(error->kind()), static_cast<int>(kind)) << error->what();
    EXPECT_NE(std::string(error->what()).find(part), std::string::npos) << error->what();
  }

  std::string folder_;
  std::string path_;
  int64_t now_ms_ = 1'700'000'000'000;
  std::string boot_id_ = "boot-1";
  int busy_timeout_ms_ = 10'000;
  size_t most_held_bytes_ = QueueOptions{}.most_held_bytes;  // 0: each add() is a transaction
};

}  // namespace nightsweep
