#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

// Each promise holds for lines that wait in memory, and for lines that go in slice by slice.
class BatchWriterTest : public QueueTest, public testing::WithParamInterface<bool> {
 protected:
  BatchWriterTest() {
    if (GetParam()) most_held_bytes_ = 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, BatchWriterTest, testing::Bool(), [](const auto& way) {
  return way.param ? "in_slices" : "held";
});

// Lines that go in slice by slice.
class SlicesTest : public QueueTest {
 protected:
  SlicesTest() { most_held_bytes_ = 0; }

  // Three slices of two lines each.
  static std::unique_ptr<BatchWriter> half_way(Queue& queue) {
    auto writer = queue.new_batch();
    for (uint64_t line = 1; line <= 6; line += 2) {
      std::vector<NewLine> lines;
      lines.push_back({job(line, "m"), {}});
      lines.push_back({job(line + 1, "m"), {}});
      writer->add(std::move(lines));
    }
    return writer;
  }
  std::string hidden() { return Sql(path_).one("SELECT count(*) FROM batch WHERE is_hidden = 1"); }
  std::string n_jobs() { return Sql(path_).one("SELECT count(*) FROM job"); }
  static std::string commit(BatchWriter& writer, const NewBatch& settings = {}) {
    bool existed = false;
    return writer.commit(settings, &existed);
  }
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_P(BatchWriterTest, a_batch_appears_whole_and_at_commit_only) {
  auto queue = open();
  auto writer = queue->new_batch();
  for (uint64_t line = 1; line <= 3; ++line)
    EXPECT_EQ(add(*writer, {job(line, "/models/a.gguf"), {}}), std::nullopt);
  EXPECT_TRUE(queue->batches(10).empty());

  NewBatch settings;
  settings.name = "night.jsonl";
  settings.model = "/models/a.gguf";
  settings.endpoint = "mixed";
  settings.options = R"({"temperature":0})";
  settings.key = "k";
  bool existed = true;
  std::string id = writer->commit(settings, &existed);
  EXPECT_FALSE(existed);
  EXPECT_EQ(id.size(), 30U);
  EXPECT_EQ(id.substr(0, 6), "batch_");

  std::optional<BatchInfo> info = queue->batch(id);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->name, "night.jsonl");
  EXPECT_EQ(info->model, "/models/a.gguf");
  EXPECT_EQ(info->endpoint, "mixed");
  EXPECT_EQ(info->options, R"({"temperature":0})");
  EXPECT_EQ(info->key, "k");
  EXPECT_EQ(info->status, "in_progress");
  EXPECT_EQ(info->created_ms, now_ms_);
  EXPECT_EQ(info->counts.total, 3U);
  EXPECT_EQ(info->counts.finished(), 0U);
  // Jobs without a model are of the batch's.
  EXPECT_EQ(queue->waiting_models(), std::vector<std::string>{"/models/a.gguf"});
  expect_counters_agree(path_);
}

TEST_P(BatchWriterTest, a_repeated_id_names_the_line_that_has_it) {
  auto queue = open();
  auto writer = queue->new_batch();
  EXPECT_EQ(add(*writer, {{4, "a", "", "{}"}, {}}), std::nullopt);
  EXPECT_EQ(add(*writer, {{7, "b", "", "{}"}, {}}), std::nullopt);
  EXPECT_EQ(add(*writer, {{9, "a", "", "{}"}, {}}), 4U);
  EXPECT_EQ(add(*writer, {{10, "b", "", ""}, refusal()}), 7U);
  // An id may hold any text.
  EXPECT_EQ(add(*writer, {{11, std::string("a\0b", 3), "", "{}"}, {}}), std::nullopt);
  EXPECT_EQ(add(*writer, {{12, std::string("a\0c", 3), "", "{}"}, {}}), std::nullopt);
}

using HeldTest = QueueTest;

TEST_F(HeldTest, a_refused_file_leaves_the_queue_byte_for_byte) {
  { submit(*open(), 5); }
  std::string before = bytes_of(path_);
  {
    auto queue = open();
    auto writer = queue->new_batch();
    for (uint64_t line = 1; line <= 500; ++line)
      add(*writer, {job(line), {}});
    EXPECT_EQ(add(*writer, {{501, "id-1", "", ""}, {}}), 1U);
  }
  EXPECT_EQ(bytes_of(path_), before);
}

TEST_P(BatchWriterTest, the_same_key_is_the_same_batch_until_it_is_cancelled) {
  auto queue = open();
  std::string first = submit(*queue, 2, keyed("k"));
  auto writer = queue->new_batch();
  add(*writer, {job(1), {}});
  bool existed = false;
  EXPECT_EQ(writer->commit(keyed("k"), &existed), first);
  EXPECT_TRUE(existed);
  EXPECT_EQ(queue->batches(10).size(), 1U);
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM job"), "2");

  EXPECT_NE(submit(*queue, 2, keyed("other")), first);
  EXPECT_NE(submit(*queue, 2), submit(*queue, 2));  // no key, no sameness
  Sql(path_).rows(format("UPDATE batches SET status = 'cancelled' WHERE id = '{}'", first));
  EXPECT_NE(submit(*queue, 2, keyed("k")), first);
  expect_counters_agree(path_);
}

TEST_P(BatchWriterTest, refused_lines_are_results_from_the_start) {
  auto queue = open_worker();
  auto writer = queue->new_batch();
  add(*writer, {job(1), {}});
  add(*writer, {job(2), refusal()});
  add(*writer, {job(3), {}});
  bool existed = false;
  std::string id = writer->commit({}, &existed);
  EXPECT_EQ(queue->batch(id)->counts.failed, 1U);
  EXPECT_EQ(queue->n_unfinished(id), 2U);
  std::vector<StoredResult> stored = queue->results_by_line(id, 0, 10);
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0].line, 2U);
  EXPECT_EQ(stored[0].custom_id, "id-2");
  EXPECT_EQ(stored[0].result.status_code, 400);
  EXPECT_EQ(stored[0].result.body, refusal().body);
  EXPECT_EQ(queue->claim(10, std::nullopt, std::nullopt).size(), 2U);
  expect_counters_agree(path_);
}

TEST_P(BatchWriterTest, a_batch_of_refused_lines_alone_is_over_at_once) {
  auto queue = open();
  auto writer = queue->new_batch();
  add(*writer, {job(1), refusal()});
  bool existed = false;
  std::string id = writer->commit({}, &existed);
  EXPECT_EQ(queue->batch(id)->status, "completed");
  EXPECT_EQ(queue->batch(id)->ended_ms, now_ms_);
  expect_counters_agree(path_);
}

TEST_P(BatchWriterTest, job_ids_keep_the_order_of_lines_over_batches) {
  auto queue = open();
  submit(*queue, 100);
  submit(*queue, 100);
  EXPECT_EQ(
      Sql(path_).one("SELECT count(*) FROM job a JOIN job b ON b.id = a.id + 1"
                     " WHERE (b.batch, b.line) <= (a.batch, a.line)"),
      "0");
}

TEST_P(BatchWriterTest, a_batch_on_its_way_in_holds_nobody_up) {
  busy_timeout_ms_ = 50;
  auto queue = open_worker();
  submit(*queue, 2);
  auto writer = queue->new_batch();
  add(*writer, {job(1), {}});
  EXPECT_EQ(queue->claim(1, std::nullopt, std::nullopt).size(), 1U);
  submit(*queue, 2);
}

TEST_F(SlicesTest, nobody_sees_what_is_on_its_way_in) {
  auto queue = open_worker();
  auto writer = half_way(*queue);
  ASSERT_EQ(n_jobs(), "6");
  EXPECT_TRUE(queue->batches(10).empty());
  EXPECT_EQ(queue->find_batch("last"), std::nullopt);
  EXPECT_EQ(queue->find_batch("batch_"), std::nullopt);
  EXPECT_EQ(queue->job_counts().waiting, 0U);
  EXPECT_EQ(queue->n_unfinished(std::nullopt), 0U);
  EXPECT_EQ(queue->health().n_unanswered, 0U);
  EXPECT_TRUE(queue->waiting_models().empty());
  EXPECT_TRUE(queue->claim(10, std::nullopt, std::nullopt).empty());
  EXPECT_EQ(queue->settle(), 0U);
  for (const char* view : {"batches", "jobs"})
    EXPECT_EQ(Sql(path_).one(format("SELECT count(*) FROM {}", view)), "0") << view;
  EXPECT_TRUE(Sql(path_).rows("UPDATE batches SET status = 'cancelled'").empty());
  EXPECT_TRUE(Sql(path_).rows("UPDATE jobs SET status = 'cancelled'").empty());
  expect_counters_agree(path_);
  std::string id = commit(*writer);
  EXPECT_EQ(queue->batch(id)->counts.total, 6U);
  EXPECT_EQ(queue->batch(id)->status, "in_progress");
  EXPECT_EQ(queue->claim(10, std::nullopt, std::nullopt).size(), 6U);
  expect_counters_agree(path_);
}

TEST_F(SlicesTest, what_is_not_committed_goes_again) {
  auto queue = open();
  submit(*queue, 2);
  std::vector<std::string> before = all_rows(path_);
  half_way(*queue).reset();
  std::vector<std::string> after = all_rows(path_);
  std::erase_if(after, [](const std::string& row) { return row.starts_with("model: "); });
  std::erase_if(before, [](const std::string& row) { return row.starts_with("model: "); });
  EXPECT_EQ(after, before);
}

TEST_F(SlicesTest, the_lines_of_a_batch_that_is_there_go_again) {
  auto queue = open();
  std::string id = submit(*queue, 6, keyed("k"));
  auto writer = half_way(*queue);
  EXPECT_EQ(commit(*writer, keyed("k")), id);
  writer.reset();
  EXPECT_EQ(n_jobs(), "6");
  EXPECT_EQ(hidden(), "0");
}

TEST_F(SlicesTest, a_killed_submit_is_cleared_away_by_the_next_worker) {
  { open(); }
  in_killed_child([&] { half_way(*open()).release(); });
  EXPECT_EQ(hidden(), "1");
  EXPECT_EQ(n_jobs(), "6");
  open_worker();
  EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM batch"), "0");
  EXPECT_EQ(n_jobs(), "0");
}

TEST_F(SlicesTest, a_killed_submit_is_cleared_away_by_the_next_one) {
  { open(); }
  in_killed_child([&] { half_way(*open()).release(); });
  std::string id = submit(*open(), 3);
  EXPECT_EQ(Sql(path_).rows("SELECT public_id FROM batch"), std::vector<std::string>{id});
  EXPECT_EQ(n_jobs(), "3");
}

TEST_F(SlicesTest, a_living_submit_is_left_alone) {
  auto queue = open();
  auto writer = half_way(*queue);
  auto other = half_way(*queue);
  auto worker = open_worker();
  worker->prune({});
  EXPECT_EQ(hidden(), "2");
  std::string id = commit(*writer);
  other.reset();
  EXPECT_EQ(worker->batch(id)->counts.total, 6U);
  EXPECT_EQ(n_jobs(), "6");
}

TEST_F(SlicesTest, lines_that_were_taken_away_are_not_acknowledged) {
  auto queue = open();
  for (bool is_last : {false, true}) {
    auto writer = half_way(*queue);
    std::filesystem::remove(path_ + ".submit");
    open_worker();
    expect_error(
        error_of([&] {
          if (is_last) {
            commit(*writer);
          } else {
            add(*writer, {job(7), {}});
          }
        }),
        ErrorKind::queue, "submit them again");
    writer.reset();
    EXPECT_TRUE(queue->batches(9).empty());
    EXPECT_EQ(n_jobs(), "0");
  }
}

TEST_F(SlicesTest, a_copy_made_half_way_is_a_queue_without_it) {
  auto queue = open();
  std::string id = submit(*queue, 2);
  auto writer = half_way(*queue);
  std::string copy = folder_ + "/copy.db";
  queue->backup(copy);
  auto worker = std::make_unique<SqliteQueue>(copy, options());
  worker->become_worker({});
  EXPECT_EQ(worker->batches(9).size(), 1U);
  EXPECT_EQ(Sql(copy).one("SELECT count(*) FROM job"), "2");
  commit(*writer);
}

// Batches are told apart by when their submit began.
TEST_F(SlicesTest, the_order_of_batches_is_that_in_which_they_began) {
  auto queue = open();
  auto writer = half_way(*queue);
  now_ms_ += 1000;
  std::string second = submit(*queue, 1);
  now_ms_ += 1000;
  std::string first = commit(*writer);
  EXPECT_EQ(queue->batch(first)->created_ms + 1000, queue->batch(second)->created_ms);
  EXPECT_EQ(queue->find_batch("last"), second);
}

TEST_F(SlicesTest, the_file_of_locks_has_the_mode_of_the_queue) {
  auto queue = open();
  ::chmod(path_.c_str(), 0660);
  auto writer = half_way(*queue);
  struct stat found {};
  ASSERT_EQ(::stat((path_ + ".submit").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660U);
}

}  // namespace
}  // namespace nightsweep
