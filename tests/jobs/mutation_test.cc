// Mutations of the fuzz corpus with a fixed seed: for builds without libFuzzer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "base/file.h"
#include "support/jsonl_check.h"

namespace nightsweep {
namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/jsonl")) {
    lines.push_back(read_whole_file(entry.path().string(), ErrorKind::input));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

const char* const kPieces[] = {
    "null",       "true",    "{}",           "[]",         "\"\"",
    "0",          "-1",      "2.0",          "1e400",      "9223372036854775808",
    "\\ud800",    "\\u0000", "\"messages\"", "\"prompt\"", "\"n\"",
    "\"stream\"", "\xff",    "{\"a\":",      "[[",         ",",
    ":"};

std::string mutated(std::string text, const std::vector<std::string>& lines, std::mt19937& random) {
  auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  int n_changes = 1 + static_cast<int>(below(4));
  for (int i = 0; i < n_changes; ++i) {
    size_t at = below(text.size() + 1);
    size_t length = std::min(text.size() - at, below(12));
    switch (below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        text.replace(at, length, kPieces[below(std::size(kPieces))]);
        break;
      default: {
        const std::string& other = lines[below(lines.size())];
        size_t from = below(other.size());
        text.replace(at, length, other, from, below(40));
        break;
      }
    }
  }
  return text;
}

TEST(JsonlMutation, the_corpus_is_made_of_jobs) {
  ASSERT_GE(corpus().size(), 4u);
  LineOptions lenient;
  lenient.lenient = true;
  for (const std::string& line : corpus())
    EXPECT_TRUE(check_line(line, lenient)) << line;
}

TEST(JsonlMutation, any_change_gives_a_job_or_a_refusal) {
  std::mt19937 random(20240229);
  std::vector<std::string> lines = corpus();
  LineOptions options;
  int n_jobs = 0;
  int n_refusals = 0;
  for (int i = 0; i < 40000; ++i) {
    options.lenient = i % 2 == 0;
    std::string line = mutated(lines[random() % lines.size()], lines, random);
    (check_line(line, options) ? n_jobs : n_refusals) += 1;
  }
  // Both ways are really walked.
  EXPECT_GT(n_jobs, 1000);
  EXPECT_GT(n_refusals, 10000);
}

}  // namespace
}  // namespace nightsweep
