// That large queues stay fast: by the plans of the statements, which do not depend on the machine.
// Times are printed, not judged.

#include <algorithm>
#include <chrono>
#include <ctime>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

// On a disk: its syncs are part of the times.
class ScaleTest : public QueueTest {
 protected:
  ScaleTest() : QueueTest(std::filesystem::temp_directory_path().string()) {}
};

// 100,000 rows, or NIGHTSWEEP_QUEUE_ROWS=1000000 for the figure of the README.
uint64_t n_rows() {
  const char* named = std::getenv("NIGHTSWEEP_QUEUE_ROWS");
  return named != nullptr ? std::strtoull(named, nullptr, 10) : 100'000;
}

template <typename Body>
double milliseconds(Body&& body) {
  auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Of ten runs.
template <typename Body>
void print_times(const std::string& what, Body&& body) {
  std::vector<double> times;
  for (int i = 0; i < 10; ++i)
    times.push_back(milliseconds(body));
  std::sort(times.begin(), times.end());
  std::printf(
      "%s: median %.2f, worst %.2f ms of ten\n", what.c_str(), times[times.size() / 2],
      times.back());
}

TEST_F(ScaleTest, a_claim_walks_an_index_in_its_order) {
  { submit(*open(), 10); }
  std::string plan = Sql(path_).plan(kNextJobsSql);
  EXPECT_NE(
      plan.find("SEARCH job USING INDEX job_waiting (batch=? AND model=?)"), std::string::npos)
      << plan;
  EXPECT_EQ(plan.find("TEMP B-TREE"), std::string::npos) << plan;
  EXPECT_NE(Sql(path_).plan(kNextSuspectsSql).find("INDEX job_suspect"), std::string::npos)
      << "a partial index of the few";
  std::string settle = Sql(path_).plan(kToSettleSql);
  EXPECT_NE(settle.find("SEARCH job USING INDEX job_waiting (batch=?)"), std::string::npos)
      << settle;
}

TEST_F(ScaleTest, status_reads_batches_and_not_jobs) {
  { submit(*open(), 10); }
  std::string plan = Sql(path_).plan("SELECT * FROM batches ORDER BY created_ms DESC");
  EXPECT_EQ(plan.find("job"), std::string::npos) << plan;
}

TEST_F(ScaleTest, a_line_of_the_view_of_jobs_is_found_by_index) {
  { submit(*open(), 10); }
  std::string plan = Sql(path_).plan("SELECT * FROM jobs WHERE batch_id = 'b' AND custom_id = 'c'");
  EXPECT_EQ(plan.find("SCAN"), std::string::npos) << plan;
}

TEST_F(ScaleTest, prints_the_times_of_a_large_queue) {
  std::string body = format(R"({{"messages":"{}"}})", std::string(1000, 'x'));
  std::string id;
  auto queue = open_worker();
  submit(*queue, 10, {}, "another");
  std::clock_t cpu = std::clock();
  double submit_ms = milliseconds([&] {
    auto writer = queue->new_batch();
    std::vector<NewLine> lines;
    for (uint64_t line = 1; line <= n_rows(); ++line) {
      lines.push_back({{line, format("request-{}", line), "model.gguf", body}, {}});
      if (lines.size() == 16'000) writer->add(std::exchange(lines, {}));
    }
    writer->add(std::move(lines));
    bool existed = false;
    id = writer->commit({}, &existed);
  });
  std::printf(
      "submit of %llu lines of 1 KB: %.0f ms, %.0f ms of them CPU\n",
      static_cast<unsigned long long>(n_rows()), submit_ms,
      static_cast<double>(std::clock() - cpu) * 1000 / CLOCKS_PER_SEC);
  std::vector<ClaimedJob> jobs;
  std::optional<std::string> batches[] = {std::nullopt, id};
  std::optional<std::string> models[] = {std::nullopt, "model.gguf"};
  for (const auto& batch : batches) {
    for (const auto& model : models) {
      print_times(
          format("claim of 64{}{}", batch ? " by batch" : "", model ? " by model" : ""), [&] {
            jobs = queue->claim(64, batch, model);
            EXPECT_EQ(jobs.size(), 64U);
          });
    }
  }
  std::vector<Checkpoint> checkpoints;
  for (const ClaimedJob& job : jobs)
    checkpoints.push_back({job.claim, "m", std::string(512, 't')});
  print_times("checkpoint of 64", [&] {
    ++now_ms_;  // what is the same would not be written
    queue->save(checkpoints, {});
  });
  std::vector<Completion> done = completions(jobs);
  std::printf("completion of 64: %.2f ms\n", milliseconds([&] { queue->save({}, done); }));
  print_times("status", [&] { open()->batches(100); });
  print_times("waiting models", [&] { queue->waiting_models(); });
  double page_ms = milliseconds([&] {
    EXPECT_EQ(queue->results_by_line(id, 0, 100).size(), 64U);
    EXPECT_EQ(queue->results_by_finish(id, 0, 100).size(), 64U);
  });
  std::printf("two pages of results: %.2f ms\n", page_ms);
  double start_ms = milliseconds([&] {
    queue.reset();
    queue = open_worker();
  });
  std::printf("end and start of a worker: %.2f ms\n", start_ms);
}

}  // namespace
}  // namespace nightsweep
