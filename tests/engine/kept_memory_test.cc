#include "engine/kept_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "engine/file_reader.h"
#include "support/async_device.h"
#include "support/expect_error.h"

namespace nightsweep {
namespace {

constexpr uint64_t kMemoryPage = 4096;

class KeptMemoryTest : public testing::Test {
 protected:
  // Starts, and waits until nothing is pending.
  void start_and_wait(KeptMemory& kept, const std::vector<uint32_t>& slices) {
    std::atomic<int> n_changes = 0;
    kept.start([&] { ++n_changes; });
    for (uint32_t slice : slices) {
      std::byte* place = nullptr;
      while (kept.find(slice, place) == KeptMemory::State::pending)
        std::this_thread::yield();
    }
    kept.stop();
    EXPECT_GT(n_changes, 0);
  }

  AsyncDevice device_;
};

TEST_F(KeptMemoryTest, every_kept_slice_has_a_place_of_its_own) {
  const std::vector<uint64_t> sizes{
      3 * kMemoryPage, 0, kMemoryPage + 1, 5 * kMemoryPage, 0, kMemoryPage, 7 * kMemoryPage};
  KeptMemory kept(device_, sizes, {.margin_bytes = 0, .piece_bytes = 6 * kMemoryPage});
  start_and_wait(kept, {0, 2, 3, 5, 6});
  std::vector<std::pair<std::byte*, uint64_t>> places;
  for (uint32_t slice : {0U, 2U, 3U, 5U, 6U}) {
    std::byte* place = nullptr;
    ASSERT_EQ(kept.find(slice, place), KeptMemory::State::ready);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % kMemoryPage, 0U);
    std::fill(place, place + sizes[slice], static_cast<std::byte>(slice + 1));
    places.emplace_back(place, slice);
  }
  for (const auto& [place, slice] : places) {
    for (uint64_t b = 0; b < sizes[slice]; ++b)
      ASSERT_EQ(place[b], static_cast<std::byte>(slice + 1)) << slice;
  }
  EXPECT_EQ(kept.locked_bytes(), kept.wanted_bytes());
  EXPECT_EQ(kept.wanted_bytes(), 18 * kMemoryPage);
}

TEST_F(KeptMemoryTest, other_programs_keep_their_margin) {
  std::atomic<uint64_t> available = 100 * kMemoryPage;
  KeptMemory kept(
      device_, std::vector<uint64_t>(50, kMemoryPage),
      {.margin_bytes = 90 * kMemoryPage, .piece_bytes = 2 * kMemoryPage, .available_bytes = [&] {
         return available -= 2 * kMemoryPage;
       }});
  start_and_wait(kept, {0, 49});
  // 98, 96, 94 and 92 leave the margin, 90 does not.
  EXPECT_EQ(kept.locked_bytes(), 8 * kMemoryPage);
  std::byte* place = nullptr;
  EXPECT_EQ(kept.find(7, place), KeptMemory::State::ready);
  EXPECT_EQ(kept.find(8, place), KeptMemory::State::refused);
  EXPECT_EQ(device_.allocated_bytes(), 8 * kMemoryPage);
}

TEST_F(KeptMemoryTest, a_refusal_of_the_device_is_an_error_for_one_that_must_keep_all) {
  device_.set_host_bytes_left(4 * kMemoryPage);
  KeptMemory kept(
      device_, std::vector<uint64_t>(9, kMemoryPage),
      {.must_keep_all = true, .margin_bytes = 0, .piece_bytes = 2 * kMemoryPage});
  std::atomic<int> n_changes = 0;
  kept.start([&] { ++n_changes; });
  while (n_changes < 3)
    std::this_thread::yield();
  std::byte* place = nullptr;
  EXPECT_EQ(kept.find(3, place), KeptMemory::State::ready);
  EXPECT_ERROR(ErrorKind::device, kept.find(4, place), "refused by the test");
  EXPECT_ERROR(ErrorKind::device, kept.find(8, place), "--source pinned");
}

TEST_F(KeptMemoryTest, nothing_is_made_after_a_stop) {
  for (int round = 0; round < 20; ++round) {
    KeptMemory kept(
        device_, std::vector<uint64_t>(500, kMemoryPage),
        {.margin_bytes = 0, .piece_bytes = kMemoryPage});
    kept.start([] {});
    kept.stop();
    const uint64_t locked_bytes = kept.locked_bytes();
    std::this_thread::yield();
    EXPECT_EQ(kept.locked_bytes(), locked_bytes);
  }
  EXPECT_EQ(device_.allocated_bytes(), 0U);
}

}  // namespace
}  // namespace nightsweep
