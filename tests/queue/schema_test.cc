// Queues of released versions, backup, and what else concerns the file as a whole.

#include "queue/schema.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "jobs/jsonl.h"
#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

class SchemaTest : public QueueTest {
 protected:
  void make_released(int version) {
    std::ifstream file(format("tests/queue/released/schema_{}.sql", version));
    ASSERT_TRUE(file.good());
    std::stringstream script;
    script << file.rdbuf();
    Sql sql(path_);
    EXPECT_TRUE(sql.rows(script.str()).empty());
  }
  // Columns, indexes, views and triggers.
  static std::vector<std::string> shape(const std::string& path) {
    Sql sql(path);
    std::vector<std::string> all = sql.rows(
        "SELECT m.name, i.name, i.type, i.\"notnull\", i.dflt_value, i.pk FROM sqlite_master AS m,"
        " pragma_table_info(m.name) AS i WHERE m.type = 'table' ORDER BY 1, 2");
    for (const std::string& row : sql.rows(
             "SELECT type, name, sql FROM sqlite_master WHERE type <> 'table' ORDER BY 1, 2")) {
      all.push_back(row);
    }
    return all;
  }
};

TEST_F(SchemaTest, every_released_schema_opens_and_loses_nothing) {
  for (int version = 1; version < kSchemaVersion; ++version) {
    path_ = format("{}/{}.db", folder_, version);
    make_released(version);
    std::vector<std::string> results = Sql(path_).rows("SELECT * FROM result ORDER BY sequence");
    std::vector<std::string> requests = Sql(path_).rows("SELECT * FROM request ORDER BY job");
    std::vector<std::string> before = all_rows(path_);
    auto queue = open_worker();
    EXPECT_EQ(Sql(path_).one("PRAGMA user_version"), std::to_string(kSchemaVersion));
    EXPECT_EQ(Sql(path_).rows("SELECT * FROM result ORDER BY sequence"), results);
    EXPECT_EQ(Sql(path_).rows("SELECT * FROM request ORDER BY job"), requests);
    expect_counters_agree(path_);
    // The jobs of its dead worker go on where they were.
    std::vector<ClaimedJob> jobs = queue->claim(99, std::nullopt, "/models/model.gguf");
    ASSERT_EQ(jobs.size(), 2U);
    EXPECT_NE(jobs[0].checkpoint, "");
    EXPECT_EQ(queue->waiting_models(), (std::vector<std::string>{"another", ""}));
    // What it was is kept beside.
    std::string copy = format("{}.schema-{}", path_, version);
    EXPECT_EQ(Sql(copy).one("PRAGMA user_version"), std::to_string(version));
    EXPECT_EQ(all_rows(copy), before);
    std::string fresh = format("{}/fresh.db", folder_);
    Queue::open(fresh);
    EXPECT_EQ(shape(path_), shape(fresh));
  }
}

TEST_F(SchemaTest, a_migration_that_fails_leaves_the_file_as_it_was) {
  make_released(1);
  Sql(path_).rows("CREATE TABLE sweep (x)");  // in the way of the last script
  std::vector<std::string> before = shape(path_);
  EXPECT_TRUE(error_of([&] { open(); }).has_value());
  EXPECT_EQ(shape(path_), before);
  EXPECT_EQ(Sql(path_).one("PRAGMA user_version"), "1");
  Sql(path_).rows("DROP TABLE sweep");
  open();
  EXPECT_EQ(Sql(path_).one("PRAGMA user_version"), std::to_string(kSchemaVersion));
}

TEST_F(SchemaTest, a_queue_at_work_is_not_moved_up) {
  make_released(1);
  WorkerLock lock(path_);
  lock.take(1, "home", 0);
  expect_error(error_of([&] { open(); }), ErrorKind::queue, "is at work");
  EXPECT_EQ(Sql(path_).one("PRAGMA user_version"), "1");
}

TEST_F(SchemaTest, a_backup_is_whole_while_a_worker_writes) {
  auto queue = open_worker();
  std::string id = submit(*queue, 3000);
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    auto other = open();
    other->register_owner({});
    while (!is_done) {
      std::vector<ClaimedJob> jobs = other->claim(5, std::nullopt, std::nullopt);
      if (jobs.empty()) return;
      other->save({}, completions(jobs));
    }
  });
  for (int i = 0; i < 3; ++i) {
    std::string copy = format("{}/copy-{}.db", folder_, i);
    queue->backup(copy);
    expect_counters_agree(copy);
    EXPECT_EQ(Queue::open(copy, options())->batch(id)->counts.total, 3000U);
    struct stat found {};
    ASSERT_EQ(::stat(copy.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
  }
  is_done = true;
  writer.join();
  expect_error(
      error_of([&] { queue->backup(folder_ + "/copy-0.db"); }), ErrorKind::usage, "is there");
  EXPECT_TRUE(error_of([&] { queue->backup(folder_ + "/no/such/copy"); }).has_value());
  // No part of a copy is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 6);
}

TEST_F(SchemaTest, links_to_the_queue_are_refused) {
  { submit(*open(), 1); }
  std::string link = folder_ + "/link.db";
  std::filesystem::create_symlink(path_, link);
  expect_error(error_of([&] { Queue::open(link); }), ErrorKind::queue, "symbolic link");
  std::string second = folder_ + "/second.db";
  std::filesystem::create_hard_link(path_, second);
  expect_error(error_of([&] { Queue::open(second); }), ErrorKind::queue, "hard links");
  expect_error(error_of([&] { open(); }), ErrorKind::queue, "hard links");
  std::filesystem::remove(second);
  open();
  std::filesystem::create_symlink(folder_ + "/nowhere.db", folder_ + "/dangling.db");
  expect_error(
      error_of([&] { Queue::open(folder_ + "/dangling.db"); }), ErrorKind::queue, "symbolic link");
}

TEST_F(SchemaTest, a_folder_that_a_group_shares_gets_a_file_for_the_group) {
  auto mode = [](const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  };
  mode_t umask_before = ::umask(0022);
  ::chmod(folder_.c_str(), 02770);
  {
    auto queue = open_worker();
    submit(*queue, 1);
    EXPECT_EQ(mode(path_), 0660U);
    EXPECT_EQ(mode(path_ + "-journal"), 0660U);
    EXPECT_EQ(mode(path_ + ".lock"), 0660U);
  }
  ::chmod(folder_.c_str(), 0755);
  path_ = folder_ + "/own.db";
  open_worker();
  EXPECT_EQ(mode(path_), 0600U);
  EXPECT_EQ(mode(path_ + ".lock"), 0600U);
  ::umask(umask_before);
}

TEST_F(SchemaTest, reading_creates_nothing) {
  EXPECT_EQ(Queue::open_existing(path_), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path_));
  { submit(*open(), 1); }
  EXPECT_NE(Queue::open_existing(path_), nullptr);
}

TEST_F(SchemaTest, health_tells_an_unclean_end) {
  {
    auto queue = open_worker();
    QueueHealth health = queue->health();
    EXPECT_EQ(health.integrity, "ok");
    EXPECT_EQ(health.journal_mode, "truncate");
    EXPECT_EQ(health.schema_version, kSchemaVersion);
    EXPECT_FALSE(health.ended_uncleanly) << "it is at work";
  }
  EXPECT_FALSE(open()->health().ended_uncleanly);
  in_killed_child([&] { open_worker().release(); });
  EXPECT_TRUE(open()->health().ended_uncleanly);
}

TEST_F(SchemaTest, health_tells_what_is_still_to_be_written) {
  auto queue = open_worker();
  EXPECT_EQ(queue->health().unanswered_bytes, 0U);
  auto writer = queue->new_batch();
  NewJob limited = job(1);
  Job request;
  request.parameters.max_tokens = 100;
  request.parameters.n = 4;
  limited.request = job_to_text(request);
  add(*writer, {limited, {}});
  bool existed = false;
  std::string batch = writer->commit({}, &existed);
  EXPECT_EQ(queue->health().n_unanswered, 1U);
  EXPECT_EQ(queue->health().unanswered_bytes, 1024U + 6 * 400) << "no answer yet: the most";

  std::string of_four = submit(*queue, 4);
  EXPECT_EQ(queue->health().n_unanswered, 5U);
  ClaimedJob next = queue->claim(1, of_four, std::nullopt).at(0);
  queue->save({}, {{next.claim, answer(std::string(5000, 'x'))}});
  QueueHealth health = queue->health();
  EXPECT_EQ(health.n_unanswered, 4U);
  EXPECT_GT(health.unanswered_bytes, 4 * 5000U) << "by what is there";
  EXPECT_LT(health.unanswered_bytes, 4 * 5100U);

  queue->cancel_batch(batch);
  queue->cancel_batch(of_four);
  while (queue->settle() > 0) {
  }
  EXPECT_EQ(queue->health().unanswered_bytes, 0U) << "nothing is left to answer";
}

}  // namespace
}  // namespace nightsweep
