#include "engine/stream_schedule.h"

#include <gtest/gtest.h>

namespace nightsweep {
namespace {

TEST(StreamSchedule, a_change_holds_from_its_sweep_on_and_leaves_the_past_as_it_was) {
  StreamSchedule schedule(2);
  schedule.set(0, 1, false);
  schedule.set(0, 4, true);
  schedule.set(0, 6, false);
  for (const auto& [sweep, passes] :
       {std::pair(0, true),
        {1, false},
        {3, false},
        {4, true},
        {5, true},
        {6, false},
        {99, false}}) {
    EXPECT_EQ(schedule.passes(0, static_cast<uint64_t>(sweep)), passes) << sweep;
    EXPECT_TRUE(schedule.passes(1, static_cast<uint64_t>(sweep)));
  }
  schedule.set(0, 5, false);  // before it came to the one at 6
  EXPECT_TRUE(schedule.passes(0, 4));
  EXPECT_FALSE(schedule.passes(0, 5));
}

TEST(StreamSchedule, next_walks_over_what_does_not_pass_and_over_the_end_of_a_sweep) {
  StreamSchedule schedule(4);
  schedule.set(0, 1, false);
  schedule.set(3, 0, false);
  SweepPosition at = schedule.next({0, 0}, 1);
  std::vector<std::pair<uint64_t, uint32_t>> walked;
  for (; at.sweep <= 1; at = schedule.next({at.sweep, at.slice + 1}, 1))
    walked.emplace_back(at.sweep, at.slice);
  EXPECT_EQ(
      walked, (std::vector<std::pair<uint64_t, uint32_t>>{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}}));
  EXPECT_EQ(at.sweep, 2U);
  EXPECT_EQ(at.slice, 0U);
}

TEST(StreamSchedule, a_sweep_in_which_nothing_passes_ends_the_walk) {
  StreamSchedule schedule(3);
  for (uint32_t slice = 0; slice < 3; ++slice)
    schedule.set(slice, 1, false);
  EXPECT_TRUE(schedule.any_passes(0));
  EXPECT_FALSE(schedule.any_passes(1));
  EXPECT_EQ(schedule.next({1, 0}, 5).sweep, 6U);
}

}  // namespace
}  // namespace nightsweep
