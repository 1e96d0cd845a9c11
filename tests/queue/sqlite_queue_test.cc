#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "queue/queue_fixture.h"
#include "queue/schema.h"

namespace nightsweep {
namespace {

using SqliteQueueTest = QueueTest;

TEST_F(SqliteQueueTest, is_created_with_its_folder_and_for_its_owner_alone) {
  path_ = folder_ + "/a/b/queue.db";
  { Queue::open(path_, options()); }
  struct stat info = {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(Sql(path_).one("PRAGMA application_id"), std::to_string(0x4E535751));
  EXPECT_EQ(Sql(path_).one("PRAGMA user_version"), std::to_string(kSchemaVersion));
  Queue::open(path_, options());
}

TEST_F(SqliteQueueTest, several_processes_create_it_at_once) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(start_child([&] { submit(*open(), 10); }));
  }
  for (pid_t child : children)
    wait_for(child);
  EXPECT_EQ(open()->batches(10).size(), 4U);
  expect_counters_agree(path_);
}

TEST_F(SqliteQueueTest, a_newer_schema_is_refused_and_left_alone) {
  { submit(*open(), 2); }
  Sql(path_).rows(format("PRAGMA user_version = {}", kSchemaVersion + 1));
  expect_error(error_of([&] { open(); }), ErrorKind::queue, format("found {}", kSchemaVersion + 1));
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM job"), "2");
}

TEST_F(SqliteQueueTest, what_is_no_queue_is_refused_and_left_alone) {
  std::string text(3000, 'x');
  std::ofstream(path_) << text;
  expect_error(error_of([&] { open(); }), ErrorKind::queue, "no SQLite database");
  EXPECT_EQ(std::filesystem::file_size(path_), text.size());

  path_ = folder_ + "/other.db";
  Sql(path_).rows("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)");
  expect_error(error_of([&] { open(); }), ErrorKind::queue, "another program's");
  EXPECT_EQ(Sql(path_).one("SELECT a FROM t"), "1");
  EXPECT_EQ(Sql(path_).one("PRAGMA journal_mode"), "wal");

  path_ = folder_ + "/folder.db";
  std::filesystem::create_directory(path_);
  expect_error(error_of([&] { open(); }), ErrorKind::queue, "found a folder");
}

TEST_F(SqliteQueueTest, a_damaged_file_is_an_error_of_the_queue) {
  { submit(*open(), 2000); }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(50 * 4096, '\x5A');
  }
  expect_error(
      error_of([&] {
        auto queue = open_worker();
        queue->claim(10, std::nullopt, std::nullopt);
      }),
      ErrorKind::queue, "damaged");
}

TEST_F(SqliteQueueTest, a_file_that_cannot_be_written_is_a_storage_error_and_can_be_read) {
  std::string id = [&] { return submit(*open(), 2); }();
  if (::geteuid() != 0) {
    ::chmod(path_.c_str(), 0400);
    auto queue = open();
    EXPECT_TRUE(queue->batch(id).has_value());
    expect_error(error_of([&] { submit(*queue, 1); }), ErrorKind::storage, "cannot be written");
    return;
  }
  // Root may write everywhere: look as somebody else.
  ::chmod(folder_.c_str(), 0755);
  ::chmod(path_.c_str(), 0444);
  in_killed_child([&] {
    if (::setuid(65534) != 0) throw std::runtime_error("setuid");
    auto queue = open();
    if (!queue->batch(id)) throw std::runtime_error("cannot be read");
    std::optional<Error> error = error_of([&] { submit(*queue, 1); });
    if (!error || error->kind() != ErrorKind::storage) throw std::runtime_error("no storage error");
  });
}

TEST_F(SqliteQueueTest, a_full_disk_keeps_what_was_acknowledged_and_goes_on_when_there_is_room) {
  auto queue = open_worker();
  std::string id = submit(*queue, 100);
  std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
  std::vector<std::string> before = all_rows(path_);

  auto limit_pages = [&](const std::string& n) {
    queue->connection().read([&] {
      Query query = queue->connection().query("PRAGMA max_page_count = " + n);
      query.step();
    });
  };
  limit_pages(Sql(path_).one("PRAGMA page_count"));
  Completion large = {jobs[0].claim, answer(std::string(1'000'000, 'x'))};
  expect_error(
      error_of([&] {
        queue->save({{jobs[1].claim, "m", "tokens"}}, {large});
      }),
      ErrorKind::storage, "disk is full");
  EXPECT_EQ(all_rows(path_), before);

  limit_pages("1000000");
  EXPECT_TRUE(queue->save({{jobs[1].claim, "m", "tokens"}}, {large}).empty());
  EXPECT_EQ(queue->batch(id)->counts.completed, 1U);
  expect_counters_agree(path_);
}

TEST_F(SqliteQueueTest, after_an_io_error_nothing_more_is_written_and_the_next_start_recovers) {
  { submit(*open(), 100); }
  in_killed_child([&] {
    auto queue = open_worker();
    std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
    // Beyond the limit a write fails with EFBIG.
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {std::filesystem::file_size(path_), RLIM_INFINITY};
    rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Completion large = {jobs[0].claim, answer(std::string(1'000'000, 'x'))};
    std::optional<Error> error = error_of([&] { queue->save({}, {large}); });
    if (!error || error->kind() != ErrorKind::storage) throw std::runtime_error("no storage error");
    ::setrlimit(RLIMIT_FSIZE, &none);
    error = error_of([&] { queue->save({}, {{jobs[0].claim, answer()}}); });
    if (!error || error->kind() != ErrorKind::storage) throw std::runtime_error("it went on");
  });
  // The fault was the machine's: nobody is suspect.
  auto queue = open_worker();
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM job WHERE strikes > 0 OR group_limit > 0"), "0");
  EXPECT_EQ(queue->claim(200, std::nullopt, std::nullopt).size(), 100U);
  expect_counters_agree(path_);
}

TEST_F(SqliteQueueTest, a_lock_that_is_kept_is_named_and_nothing_is_written) {
  busy_timeout_ms_ = 20;
  auto queue = open();
  Sql other(path_);
  other.rows("BEGIN IMMEDIATE");
  expect_error(error_of([&] { submit(*queue, 1); }), ErrorKind::queue, "locked");
  other.rows("COMMIT");
  submit(*queue, 1);
  EXPECT_EQ(queue->batches(10).size(), 1U);
}

TEST_F(SqliteQueueTest, a_commit_waits_for_a_slow_reader_and_is_done_once) {
  busy_timeout_ms_ = 5;
  { open(); }
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = start_child([&] {
    Sql reader(path_);
    reader.rows("BEGIN; SELECT count(*) FROM batch");
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    ::usleep(20'000);
    reader.rows("COMMIT");
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  auto queue = open();
  // Longer than the child waits, in pieces of 5 ms.
  std::string id;
  for (int i = 0; i < 200 && id.empty(); ++i) {
    error_of([&] { id = submit(*queue, 3); });
  }
  wait_for(child);
  EXPECT_EQ(queue->batches(10).size(), 1U);
  expect_counters_agree(path_);
}

TEST_F(SqliteQueueTest, batches_are_found_by_prefix_and_as_the_last) {
  auto queue = open();
  EXPECT_FALSE(queue->find_batch("last").has_value());
  std::string a = submit(*queue, 1);
  std::string b = submit(*queue, 1);
  EXPECT_EQ(queue->find_batch("last"), b);
  EXPECT_EQ(queue->find_batch(a), a);
  EXPECT_EQ(queue->find_batch(a.substr(0, 25)), a);
  EXPECT_EQ(queue->find_batch(a.substr(6, 20)), a);
  EXPECT_FALSE(queue->find_batch("batch_").has_value());  // two
  EXPECT_FALSE(queue->find_batch("").has_value());
  EXPECT_FALSE(queue->find_batch("%").has_value());
  EXPECT_FALSE(queue->find_batch(a + "x").has_value());
  EXPECT_FALSE(queue->batch("batch_no").has_value());
  EXPECT_EQ(queue->batches(1).at(0).id, b);
}

TEST_F(SqliteQueueTest, results_come_in_pages_by_line_and_by_finish) {
  auto queue = open_worker();
  std::string other = submit(*queue, 3, of_priority(1));
  std::string id = submit(*queue, 10);
  queue->save({}, completions(queue->claim(3, other, std::nullopt)));
  std::vector<ClaimedJob> jobs = queue->claim(10, id, std::nullopt);
  for (size_t i : {7, 2, 9, 0, 4}) {
    NewResult result = answer(format("answer {}", jobs[i].line));
    EXPECT_TRUE(queue->save({}, {{jobs[i].claim, result}}).empty());
  }
  std::vector<uint64_t> lines;
  uint64_t after = 0;
  for (std::vector<StoredResult> page; !(page = queue->results_by_line(id, after, 2)).empty();) {
    for (const StoredResult& stored : page) {
      lines.push_back(stored.line);
      EXPECT_EQ(stored.custom_id, format("id-{}", stored.line));
      EXPECT_EQ(stored.result.body, answer(format("answer {}", stored.line)).body);
      EXPECT_EQ(stored.result.completion_tokens, 5U);
    }
    after = page.back().line;
  }
  EXPECT_EQ(lines, (std::vector<uint64_t>{1, 3, 5, 8, 10}));
  lines.clear();
  after = 0;
  for (std::vector<StoredResult> page; !(page = queue->results_by_finish(id, after, 2)).empty();) {
    for (const StoredResult& stored : page)
      lines.push_back(stored.line);
    after = page.back().sequence;
  }
  EXPECT_EQ(lines, (std::vector<uint64_t>{8, 3, 10, 1, 5}));
}

TEST_F(SqliteQueueTest, the_views_can_be_read_by_people) {
  auto queue = open_worker();
  NewBatch settings;
  settings.name = "night.jsonl";
  settings.model = "m.gguf";
  std::string id = submit(*queue, 3, settings, "m.gguf");
  now_ms_ += 1500;
  std::vector<ClaimedJob> jobs = queue->claim(2, std::nullopt, std::nullopt);
  queue->save({}, {{jobs[0].claim, answer()}, {jobs[1].claim, refusal()}});
  Sql sql(path_);
  EXPECT_EQ(
      sql.one("SELECT id, name, status, model, total, completed, failed, running, waiting,"
              " prompt_tokens, completion_tokens, created_at, started_at, ended_at, created_ms"
              " FROM batches"),
      id + "|night.jsonl|in_progress|m.gguf|3|1|1|0|1|3|5|2023-11-14T22:13:20.000Z|"
           "2023-11-14T22:13:21.500Z||1700000000000");
  std::string columns =
      "SELECT batch_id = '" + id +
      "', line, custom_id, status, model, attempt, status_code, error_message, completion_tokens,"
      " started_at, tokens_per_s, request, response FROM jobs ORDER BY id";
  EXPECT_EQ(
      sql.rows(columns),
      (std::vector<std::string>{
          R"(1|1|id-1|completed|m.gguf|1|200||5|2023-11-14T22:13:21.500Z|12.5|{"line":1}|{"text":"hello"})",
          "1|2|id-2|failed|m.gguf|1|400|body.n: expected 1, found 0|0|2023-11-14T22:13:21.500Z||"
          R"({"line":2}|)" +
              refusal().body,
          R"(1|3|id-3|waiting|m.gguf|0||||||{"line":3}|)"}));
}

}  // namespace
}  // namespace nightsweep
