#include "engine/read_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "support/scripted_reader.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class ReadQueueTest : public testing::Test {
 protected:
  ReadQueueTest() : content_(250'123, '\0'), memory_(content_.size() + 64 * kDirectAlignment) {
    std::mt19937_64 random(7);
    for (char& c : content_)
      c = static_cast<char>(random());
    std::ofstream(path_, std::ios::binary) << content_;
  }

  ScriptedReader reader(const ReaderScript& script) const {
    return {{.paths = {path_}, .file_bytes = {content_.size()}, .depth = 5}, script};
  }

  // What a queue says when it reads the whole file.
  void read_all(FileReader& file_reader) {
    ReadQueue queue(file_reader, 0, 16384);
    queue.push(covering_range(0, 0, content_.size(), memory_.data()));
    while (!queue.is_idle())
      queue.advance();
  }
  std::string error_of(FileReader& file_reader, ErrorKind kind) {
    try {
      read_all(file_reader);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("file");
  std::string content_;
  std::vector<std::byte> memory_;
};

TEST_F(ReadQueueTest, a_covering_range_is_aligned_and_needs_no_more_than_was_asked) {
  std::byte* into = memory_.data();
  for (uint64_t offset : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 99'999UL}) {
    for (uint64_t size_bytes : {1UL, 2UL, 4095UL, 4096UL, 4097UL, 12'288UL, 70'001UL}) {
      const ReadRange range = covering_range(3, offset, size_bytes, into);
      EXPECT_EQ(range.file, 3U);
      EXPECT_EQ(range.offset % kDirectAlignment, 0U);
      EXPECT_EQ(range.size_bytes % kDirectAlignment, 0U);
      EXPECT_LE(range.offset, offset);
      EXPECT_LT(offset - range.offset, kDirectAlignment);
      EXPECT_EQ(range.offset + range.needed_bytes, offset + size_bytes);
      EXPECT_GE(range.size_bytes, range.needed_bytes);
      EXPECT_LT(range.size_bytes - range.needed_bytes, kDirectAlignment);
    }
  }
}

TEST_F(ReadQueueTest, ranges_are_whole_whatever_the_reader_does) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    ScriptedReader scripted_reader =
        reader({.seed = seed, .alignment = seed % 2 == 0 ? kDirectAlignment : 1});
    ReadQueue queue(scripted_reader, 0, 4096 * (1 + random() % 5));
    std::set<uint64_t> expected;
    std::set<uint64_t> complete;
    uint64_t at = 0;
    while (at < content_.size() || !queue.is_idle()) {
      if (at < content_.size() && random() % 3 != 0) {
        const uint64_t size_bytes =
            std::min<uint64_t>(4096 * (1 + random() % 12), content_.size() - at);
        ReadRange range = covering_range(0, at, size_bytes, memory_.data() + at);
        range.tag = at;
        queue.push(range);
        expected.insert(at);
        at += size_bytes;
      } else if (!queue.is_idle()) {
        for (uint64_t tag : queue.advance()) {
          EXPECT_TRUE(complete.insert(tag).second) << "told twice";
          // A range that is said to be complete is complete now.
          EXPECT_EQ(
              std::memcmp(
                  memory_.data() + tag, content_.data() + tag,
                  std::min<uint64_t>(4096, content_.size() - tag)),
              0);
        }
      }
    }
    EXPECT_EQ(complete, expected);
    EXPECT_EQ(std::memcmp(memory_.data(), content_.data(), content_.size()), 0);
  }
}

TEST_F(ReadQueueTest, an_io_error_names_file_offset_and_errno) {
  ScriptedReader failing = reader(
      {.is_short = false, .has_failure = true, .failure_offset = 50'000, .failure_result = -EIO});
  const std::string text = error_of(failing, ErrorKind::storage);
  EXPECT_NE(text.find(path_), std::string::npos) << text;
  EXPECT_NE(text.find("offset 49152"), std::string::npos) << text;
  EXPECT_NE(text.find("Input/output error (errno 5)"), std::string::npos) << text;
}

TEST_F(ReadQueueTest, an_early_end_of_the_file_names_file_offset_expected_and_found) {
  ScriptedReader failing =
      reader({.is_short = false, .has_failure = true, .failure_offset = 50'000});
  const std::string text = error_of(failing, ErrorKind::model);
  EXPECT_NE(text.find(path_), std::string::npos) << text;
  EXPECT_NE(
      text.find("expected 16384 bytes at offset 49152, found 0 and the end of the file (it had "
                "250123 bytes when it was opened)"),
      std::string::npos)
      << text;
}

TEST_F(ReadQueueTest, a_truncated_file_is_no_endless_loop) {
  for (uint64_t new_bytes : {0UL, 100UL, 4096UL, 100'000UL, 250'122UL}) {
    SCOPED_TRACE(new_bytes);
    std::ofstream(path_, std::ios::binary) << content_;
    ScriptedReader truncated = reader({});
    std::filesystem::resize_file(path_, new_bytes);
    const std::string text = error_of(truncated, ErrorKind::model);
    EXPECT_NE(text.find("truncated while in use"), std::string::npos) << text;
  }
}

TEST_F(ReadQueueTest, an_error_of_a_file_that_was_written_to_blames_the_writer) {
  ScriptedReader failing =
      reader({.has_failure = true, .failure_offset = 50'000, .failure_result = -EIO});
  std::ofstream(path_, std::ios::binary | std::ios::app) << "more";
  const std::string text = error_of(failing, ErrorKind::model);
  EXPECT_NE(text.find("expected 250123 bytes as at the start, found 250127"), std::string::npos)
      << text;
}

TEST_F(ReadQueueTest, a_stuck_reader_is_an_error_not_a_loop) {
  // One byte at a time is no progress where blocks of 4096 are needed.
  class OneByte final : public FileReader {
   public:
    explicit OneByte(FileSet files) : FileReader(std::move(files), "one byte", 4096, 1) {}
    void submit(const FileRead& read) override { tag_ = read.tag; }
    void wait(std::vector<FileReadEnd>& ended) override { ended.push_back({tag_, 1}); }

   private:
    uint64_t tag_ = 0;
  };
  OneByte stuck(FileSet::open({path_}, {content_.size()}, 0));
  error_of(stuck, ErrorKind::storage);
}

TEST_F(ReadQueueTest, the_throttle_holds_its_rate) {
  // Time is a parameter: nothing here depends on the speed of the machine.
  RateLimit limit(1e6);
  RateLimit::Clock::time_point now{std::chrono::hours(1)};
  const auto begin = now;
  for (int i = 0; i < 100; ++i) {
    const auto delay = limit.delay(10'000, now);
    EXPECT_GT(delay, RateLimit::Clock::duration::zero());
    now += delay;
    if (i % 3 == 0) now += std::chrono::milliseconds(2);  // woke too late: made up for
    EXPECT_EQ(limit.delay(10'000, now), RateLimit::Clock::duration::zero());
    limit.pass();
  }
  const double seconds = std::chrono::duration<double>(now - begin).count();
  EXPECT_GT(seconds, 0.98);
  EXPECT_LT(seconds, 1.01);

  now += std::chrono::seconds(10);  // an idle disk saves nothing up
  EXPECT_GT(limit.delay(10'000, now), std::chrono::milliseconds(4));

  RateLimit none(0);
  EXPECT_EQ(none.delay(1 << 30, now), RateLimit::Clock::duration::zero());
}

}  // namespace
}  // namespace nightsweep
