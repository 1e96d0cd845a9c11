#include "runner/line_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nightsweep {
namespace {

// Keeps the numbers of the lines; those in `taken` are there already.
struct FakeWriter final : BatchWriter {
  std::vector<std::vector<uint64_t>> slices;
  std::vector<uint64_t> taken;
  bool is_broken = false;

  std::vector<Repeated> add(std::vector<NewLine> lines) override {
    if (is_broken) throw std::runtime_error("the disk is full");
    std::vector<Repeated> repeated;
    slices.emplace_back();
    for (NewLine& line : lines) {
      slices.back().push_back(line.job.line);
      if (std::find(taken.begin(), taken.end(), line.job.line) != taken.end())
        repeated.push_back({std::move(line), 1});
    }
    return repeated;
  }
  std::string commit(const NewBatch&, bool*) override { return {}; }
};

class LineStoreTest : public testing::Test {
 protected:
  LineStoreTest()
      : store_(std::unique_ptr<BatchWriter>(writer_), [this](auto errors, auto lines) {
          auto error = errors.begin();
          for (const BatchWriter::Repeated& one : lines) {
            for (; error != errors.end() && error->line < one.line.job.line; ++error)
              reported_.push_back(error->line);
            reported_.push_back(one.line.job.line);
          }
          for (; error != errors.end(); ++error)
            reported_.push_back(error->line);
        }) {}

  void add(uint64_t line, size_t n_bytes = 0) {
    NewLine added;
    added.job.line = line;
    added.job.request = std::string(n_bytes, 'x');
    store_.add(std::move(added));
  }
  void refuse(uint64_t line) {
    LineError error;
    error.line = line;
    store_.refuse(error);
  }

  FakeWriter* writer_ = new FakeWriter;  // the store's
  std::vector<uint64_t> reported_;
  LineStore store_;
};

TEST_F(LineStoreTest, lines_arrive_in_order_and_in_slices_of_some_megabytes) {
  for (uint64_t line = 1; line <= 40; ++line)
    add(line, 1 << 20);
  store_.finish();
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& slice : writer_->slices) {
    EXPECT_LE(slice.size(), 17U);
    all.insert(all.end(), slice.begin(), slice.end());
  }
  EXPECT_EQ(writer_->slices.size(), 3U);
  ASSERT_EQ(all.size(), 40U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
}

TEST_F(LineStoreTest, short_lines_are_bounded_by_their_number) {
  constexpr uint64_t kLines = 100'000;
  for (uint64_t line = 1; line <= kLines; ++line)
    line % 3 == 0 ? refuse(line) : add(line);
  store_.finish();
  EXPECT_EQ(writer_->slices.size(), 4U);
  EXPECT_EQ(reported_.size(), kLines / 3);
  EXPECT_TRUE(std::is_sorted(reported_.begin(), reported_.end()));
}

TEST_F(LineStoreTest, what_was_wrong_is_reported_by_line) {
  writer_->taken = {2, 5, 8};
  for (uint64_t line = 1; line <= 10; ++line)
    line % 3 == 0 ? refuse(line) : add(line);
  EXPECT_TRUE(reported_.empty());
  store_.finish();
  EXPECT_EQ(reported_, (std::vector<uint64_t>{2, 3, 5, 6, 8, 9}));
}

TEST_F(LineStoreTest, what_storing_throws_reaches_the_caller) {
  writer_->is_broken = true;
  EXPECT_THROW(
      {
        for (uint64_t line = 1; line <= 70; ++line)
          add(line, 1 << 20);
      },
      std::runtime_error);
}

TEST_F(LineStoreTest, what_storing_throws_last_reaches_the_caller) {
  writer_->is_broken = true;
  add(1);
  EXPECT_THROW(store_.finish(), std::runtime_error);
}

}  // namespace
}  // namespace nightsweep
