#include <fstream>
#include <sstream>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using BatchWriterTest = QueueTest;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(BatchWriterTest, a_batch_appears_whole_and_at_commit_only) {
  auto queue = open();
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  for (uint64_t line = 1; line <= 3; ++line)
    EXPECT_TRUE(writer->add(job(line), &first_line));
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

TEST_F(BatchWriterTest, a_repeated_id_names_the_line_that_has_it) {
  auto queue = open();
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  EXPECT_TRUE(writer->add({4, "a", "", "{}"}, &first_line));
  EXPECT_TRUE(writer->add({7, "b", "", "{}"}, &first_line));
  EXPECT_FALSE(writer->add({9, "a", "", "{}"}, &first_line));
  EXPECT_EQ(first_line, 4U);
  EXPECT_FALSE(writer->add_refused({10, "b", "", ""}, refusal(), &first_line));
  EXPECT_EQ(first_line, 7U);
  // An id may hold any text.
  EXPECT_TRUE(writer->add({11, std::string("a\0b", 3), "", "{}"}, &first_line));
  EXPECT_TRUE(writer->add({12, std::string("a\0c", 3), "", "{}"}, &first_line));
}

TEST_F(BatchWriterTest, a_refused_file_leaves_the_queue_byte_for_byte) {
  { submit(*open(), 5); }
  std::string before = bytes_of(path_);
  {
    auto queue = open();
    auto writer = queue->new_batch();
    uint64_t first_line = 0;
    for (uint64_t line = 1; line <= 500; ++line)
      writer->add(job(line), &first_line);
    writer->add({501, "id-1", "", ""}, &first_line);
  }
  EXPECT_EQ(bytes_of(path_), before);
}

TEST_F(BatchWriterTest, the_same_key_is_the_same_batch_until_it_is_cancelled) {
  auto queue = open();
  std::string first = submit(*queue, 2, keyed("k"));
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  writer->add(job(1), &first_line);
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

TEST_F(BatchWriterTest, refused_lines_are_results_from_the_start) {
  auto queue = open_worker();
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  writer->add(job(1), &first_line);
  writer->add_refused(job(2), refusal(), &first_line);
  writer->add(job(3), &first_line);
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

TEST_F(BatchWriterTest, a_batch_of_refused_lines_alone_is_over_at_once) {
  auto queue = open();
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  writer->add_refused(job(1), refusal(), &first_line);
  bool existed = false;
  std::string id = writer->commit({}, &existed);
  EXPECT_EQ(queue->batch(id)->status, "completed");
  EXPECT_EQ(queue->batch(id)->ended_ms, now_ms_);
  expect_counters_agree(path_);
}

TEST_F(BatchWriterTest, job_ids_keep_the_order_of_lines_over_batches) {
  auto queue = open();
  submit(*queue, 100);
  submit(*queue, 100);
  EXPECT_EQ(
      Sql(path_).one("SELECT count(*) FROM job a JOIN job b ON b.id = a.id + 1"
                     " WHERE (b.batch, b.line) <= (a.batch, a.line)"),
      "0");
}

TEST_F(BatchWriterTest, a_batch_on_its_way_in_holds_nobody_up) {
  busy_timeout_ms_ = 50;
  auto queue = open_worker();
  submit(*queue, 2);
  auto writer = queue->new_batch();
  uint64_t first_line = 0;
  writer->add(job(1), &first_line);
  EXPECT_EQ(queue->claim(1, std::nullopt, std::nullopt).size(), 1U);
  submit(*queue, 2);
}

}  // namespace
}  // namespace nightsweep
