// The program on each device: what must survive on a GPU as it does on the CPU.
#include <algorithm>
#include <filesystem>
#include <random>

#include "base/json.h"
#include "kernels/device.h"
#include "support/program.h"

namespace nightsweep {
namespace {

// The device under test: a GPU, or the CPU, which has the same promises to keep.
class ProgramOn : public ProgramTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "cuda" && cuda_support().n_gpus == 0) {
      GTEST_SKIP() << "SKIPPED: no GPU for this test: " << cuda_support().why_not;
    }
  }
  std::vector<std::string>
  command(const std::string& in, const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"run",   in,   "--batch",         "4",        "--model",
                                      model(), "-o", folder_.path(out), "--device", GetParam()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  int64_t count(const char* name) {
    const Json status = Json::parse(run({"status", "--json"}).out);
    const Json::Array& batches = status.find("batches")->as_array();
    return batches.empty() ? 0 : batches[0].find("request_counts")->find(name)->as_integer();
  }
};

INSTANTIATE_TEST_SUITE_P(devices, ProgramOn, testing::Values("cpu", "cuda"), [](const auto& shown) {
  return std::string(shown.param);
});

TEST_P(ProgramOn, a_lost_device_ends_with_5_and_costs_nobody_anything) {
  const std::string in = write_file("in.jsonl", lines(12, 20));
  const Outcome lost = run(command(in, "a"), "device-lost:step:31");
  EXPECT_EQ(lost.code, 5) << lost.err;
  EXPECT_NE(lost.err.find("lost"), std::string::npos) << lost.err;
  std::printf("%s", lost.err.substr(lost.err.rfind('\n', lost.err.size() - 2) + 1).c_str());
  EXPECT_FALSE(std::ifstream(folder_.path("a")).good()) << "no half file";
  EXPECT_GE(count("completed"), 4) << "what was finished is kept";
  EXPECT_EQ(count("failed"), 0);
  ASSERT_EQ(run(command(in, "a")).code, 0);
  const std::string answers = read(folder_.path("a"));
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 12);
  for (size_t at = 0; at < answers.size();) {
    const size_t end = answers.find('\n', at);
    const Json line = Json::parse(answers.substr(at, end - at));
    EXPECT_EQ(line.find("nightsweep")->find("attempts")->as_integer(), 1) << "not the job's fault";
    at = end + 1;
  }
  ASSERT_EQ(run(command(in, "stable", {"--stable"})).code, 0);
  ASSERT_EQ(run(command(in, "b", {"--stable", "--queue", folder_.path("other.db")})).code, 0);
  EXPECT_EQ(read(folder_.path("stable")), read(folder_.path("b")));
}

// In the middle of what it does, and between two steps.
TEST_P(ProgramOn, kills_at_random_moments_leave_the_same_bytes) {
  // No attempt comes further than 300 steps of 3,200. On the CPU a test of its own does more.
  const int n_wanted = std::string(GetParam()) == "cuda" ? 8 : 2;
  const unsigned longest_ms = std::string(GetParam()) == "cuda" ? 1500 : 100;
  const std::string in = write_file("in.jsonl", lines(32, 400));
  std::mt19937 random(21);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same moments every time
  for (const char* kv : {"f16", "q8_0"}) {
    const std::vector<std::string> more = {
        "--stable", "--kv", kv, "--queue", folder_.path(std::string(kv) + ".db")};
    int n_kills = 0;
    for (int i = 0; i < n_wanted; ++i) {
      const bool is_between_steps = i % 2 == 0;
      const std::string fault =
          format("crash:step:{}", is_between_steps ? 1 + random() % 300 : 300);
      const pid_t child = start(command(in, "a", more), folder_.path("child.out"), fault);
      if (!is_between_steps) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % longest_ms));
        ::kill(child, SIGKILL);
      }
      n_kills += wait_for(child) == 128 + SIGKILL ? 1 : 0;
    }
    EXPECT_EQ(n_kills, n_wanted) << "the work must outlast the kills";
    EXPECT_FALSE(std::ifstream(folder_.path("a")).good()) << "no half file";
    const Outcome resumed = run(command(in, "a", more));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    ASSERT_EQ(
        run(command(in, "b", {"--stable", "--kv", kv, "--queue", folder_.path("fresh.db")})).code,
        0);
    EXPECT_EQ(read(folder_.path("a")), read(folder_.path("b"))) << kv;
    std::filesystem::remove(folder_.path("a"));
    std::filesystem::remove(folder_.path("fresh.db"));
  }
}

}  // namespace
}  // namespace nightsweep
