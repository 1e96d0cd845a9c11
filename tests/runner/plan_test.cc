// `plan` and `bench sweep` as their users meet them.
#include <gtest/gtest.h>

#include "base/json.h"
#include "runner/sweep_plot.h"
#include "support/program.h"

namespace nightsweep {
namespace {

class PlanProgram : public ProgramTest {
 protected:
  // A machine that is not here, told by its figures alone.
  std::vector<std::string> of_70b(std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",  "--shape", "llama-70b:Q4_K_M", "--vram", "22GiB",
                                      "--ram", "40GiB",   "--context",        "256",    "--batch",
                                      "64"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string rates() {
    return write_file(
        "rates.json",
        R"({"device":"test","memory_rate":1e10,"flops":1e11,"disk_rate":1e9,"operator_s":1e-6})");
  }
};

TEST_F(PlanProgram, a_machine_is_planned_without_a_gpu_and_without_a_file) {
  const Outcome outcome = run(of_70b(
      {"--link-rate", "6.5GB/s", "--disk-rate", "3.35GB/s", "--jobs", "64", "--prompt-tokens",
       "128", "--answer-tokens", "128", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json plan = Json::parse(outcome.out);
  for (const char* key : {"sweep_s", "tokens_per_s", "binding", "placement", "finish_s", "advice"})
    ASSERT_NE(plan.find(key), nullptr) << key;
  EXPECT_EQ(plan.find("binding")->as_string(), "link");
  // 64 sequences over a link of 6.5 GB/s: the issue's limit is 17.8 tokens/s.
  EXPECT_NEAR(plan.find("tokens_per_s")->as_double(), 17.8, 2.5);
  EXPECT_NEAR(
      plan.find("sweep_s")->as_double(),
      plan.find("placement")->find("link_bytes")->as_double() / 6.5e9, 1e-6);
  EXPECT_GT(plan.find("finish_s")->as_double(), 128 * plan.find("sweep_s")->as_double());
  EXPECT_FALSE(plan.find("placement")->find("groups")->as_array().empty());

  const Outcome text = run(of_70b({"--link-rate", "6.5GB/s", "--gpu", "rtx-3090"}));
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"<- binds", "--link-rate", "What would help most", "link twice as fast"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in " << text.out;
}

TEST_F(PlanProgram, what_is_missing_is_named_with_how_to_measure_it) {
  const Outcome link = run(of_70b({"--gpu", "rtx-3090"}));
  EXPECT_EQ(link.code, 2);
  EXPECT_NE(link.err.find("bench links"), std::string::npos) << link.err;
  EXPECT_NE(link.err.find("--link-rate"), std::string::npos);
  const Outcome disk = run(
      {"plan", "--shape", "llama-70b:Q4_K_M", "--vram", "22GiB", "--ram", "8GiB", "--link-rate",
       "25GB/s"});
  EXPECT_EQ(disk.code, 2);
  EXPECT_NE(disk.err.find("--disk-rate"), std::string::npos) << disk.err;
  const Outcome part = run(of_70b({"--link-rate", "6.5GB/s", "--jobs", "10"}));
  EXPECT_EQ(part.code, 2);
  EXPECT_NE(part.err.find("--prompt-tokens"), std::string::npos) << part.err;
  EXPECT_EQ(run({"plan", "--shape", "llama-9b:Q4_K_M"}).code, 2);
  EXPECT_EQ(run({"plan"}).code, 2);
  EXPECT_EQ(run(of_70b({"--gpu", "rtx-1"})).code, 2);
  EXPECT_EQ(run(of_70b({"--link-rate", "6.5GB/s", "--flops", "fast"})).code, 2);
  const Outcome small =
      run({"plan", "--shape", "llama-70b:Q4_K_M", "--vram", "300MiB", "--link-rate", "6.5GB/s"});
  EXPECT_EQ(small.code, 5);
  EXPECT_NE(small.err.find("--vram"), std::string::npos) << small.err;
}

TEST_F(PlanProgram, a_sweep_is_held_against_its_forecast_and_drawn) {
  const std::string svg = folder_.path("sweep.svg");
  const Outcome outcome = run(
      {"bench", "sweep", "--device", "cpu", "--model", model(), "--rates", rates(), "--batch",
       "1,3", "--prompt", "8", "--generate", "6", "--json", "--svg", svg});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  for (const int n : {1, 3}) {
    ASSERT_TRUE(std::getline(lines, line));
    const Json one = Json::parse(line);
    EXPECT_EQ(one.find("sequences")->as_integer(), n);
    EXPECT_GT(one.find("decode_sweep_s")->as_double(), 0);
    EXPECT_GT(one.find("predicted_sweep_s")->as_double(), 0);
    EXPECT_NEAR(
        one.find("measured_over_predicted")->as_double(),
        one.find("decode_sweep_s")->as_double() / one.find("predicted_sweep_s")->as_double(), 1e-6);
  }
  EXPECT_EQ(read(svg).substr(0, 4), "<svg");
}

TEST_F(PlanProgram, a_shape_is_written_once_and_measured) {
  const std::string file = folder_.path("shape.gguf");
  const std::vector<std::string> words = {
      "bench",        "sweep", "--device",   "cpu",   "--shape", "llama-tiny:Q4_K_M",
      "--shape-file", file,    "--rates",    rates(), "--batch", "2",
      "--prompt",     "4",     "--generate", "2"};
  const Outcome first = run(words);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("writing"), std::string::npos);
  EXPECT_NE(first.out.find("m/p"), std::string::npos) << first.out;
  const Outcome second = run(words);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.find("writing"), std::string::npos) << second.err;
  std::vector<std::string> other = words;
  other[5] = "llama-tiny:Q8_0";
  EXPECT_EQ(run(other).code, 2);
}

TEST(SweepPlot, shows_every_case_and_the_limit_where_there_is_one) {
  SweepCase one{
      .n_sequences = 16, .decode_tps = 40, .decode_sweep_s = 0.4, .predicted_sweep_s = 0.38};
  const std::string plain = sweep_plot("a<b", {one});
  EXPECT_NE(plain.find("a&lt;b"), std::string::npos);
  EXPECT_EQ(plain.find("link and disk allow"), std::string::npos);
  one.traffic_s = 0.37;
  const std::string limited = sweep_plot("model", {one, one});
  EXPECT_NE(limited.find("link and disk allow"), std::string::npos);
  EXPECT_NE(limited.find(">40<"), std::string::npos);
}

}  // namespace
}  // namespace nightsweep
