#include "runner/passing_file.h"

#include <filesystem>

#include "support/program.h"

namespace nightsweep {
namespace {

class PassingFileProgram : public ProgramTest {};

TEST_F(PassingFileProgram, weights_of_a_benchmark_go_with_it_however_it_ends) {
  const std::string cache = folder_.path("cache");
  environment_["XDG_CACHE_HOME"] = cache;
  const auto n_files = [&] {
    size_t n = 0;
    if (!std::filesystem::exists(cache)) return n;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache))
      n += entry.is_regular_file() ? 1 : 0;
    return n;
  };
  const std::vector<std::string> words = {
      "bench",   "sweep", "--device", "cpu", "--shape",   "llama-tiny:Q8_0",
      "--batch", "1",     "--prompt", "1",   "--generate"};
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::vector<std::string> long_words = words;
    long_words.emplace_back("1000");
    const pid_t child = start(long_words, folder_.path("out"));
    for (int i = 0; i < 1000 && n_files() == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(n_files(), 1U);
    ::kill(child, number);
    EXPECT_EQ(wait_for(child), 128 + number);
    EXPECT_EQ(n_files(), 0U) << number;
  }
}

TEST_F(PassingFileProgram, it_goes_with_its_object_and_there_is_one) {
  const std::string path = folder_.path("weights");
  {
    const PassingFile file(path);
    write_file("weights", "x");
    EXPECT_THROW(PassingFile(folder_.path("other")), Error);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const PassingFile again(path);
}

}  // namespace
}  // namespace nightsweep
