#include "runner/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <regex>
#include <sstream>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

Metrics some_metrics() {
  Metrics metrics;
  metrics.jobs = {.waiting = 4, .running = 3, .completed = 2, .failed = 1};
  metrics.model = "/models/a \"b\".gguf";
  metrics.counters.completion_tokens = 1234;
  metrics.engine.weight_bytes = 100;
  metrics.engine.stream.resident_bytes = 30;
  metrics.counters.energy_j = 41.5;
  return metrics;
}

TEST(MetricsFile, is_in_the_format_of_the_collector) {
  std::string text = metrics_text(some_metrics());
  EXPECT_NE(text.find("nightsweep_jobs{state=\"waiting\"} 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("nightsweep_tokens_total{kind=\"generated\"} 1234\n"), std::string::npos);
  EXPECT_NE(text.find("nightsweep_weight_bytes{tier=\"streamed\"} 70\n"), std::string::npos);
  EXPECT_NE(text.find("model=\"/models/a \\\"b\\\".gguf\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("nightsweep_energy_joules_total 41.5\n"), std::string::npos);
  std::regex line(
      R"(# (HELP|TYPE) nightsweep_[a-z_]+ .+|nightsweep_[a-z_]+(\{[a-z]+="([^"\\]|\\.)*"\})? [0-9.e+-]+)");
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);)
    EXPECT_TRUE(std::regex_match(one, line)) << one;
}

TEST(MetricsFile, what_is_not_known_is_left_out) {
  Metrics metrics = some_metrics();
  metrics.counters.energy_j = -1;
  EXPECT_EQ(metrics_text(metrics).find("joules"), std::string::npos);
}

TEST(MetricsFile, can_be_read_by_the_collector) {
  TemporaryFolder folder;
  std::string path = folder.path("nightsweep.prom");
  write_metrics(path, some_metrics());
  write_metrics(path, some_metrics());
  EXPECT_EQ(read_whole_file(path, ErrorKind::internal), metrics_text(some_metrics()));
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0644U);
}

}  // namespace
}  // namespace nightsweep
