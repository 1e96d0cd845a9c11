#include <gtest/gtest.h>

#include <array>

#include "kernels/cuda/fresh_weights.h"

namespace nightsweep::cuda {
namespace {

// Needs no GPU.
TEST(FreshWeights, hold_what_was_packed_until_the_stream_is_waited_for) {
  std::array<std::byte, 100> memory{};
  FreshWeights fresh;
  EXPECT_FALSE(fresh.holds(memory.data()));
  fresh.add(memory.data() + 40, 20);
  EXPECT_FALSE(fresh.holds(memory.data() + 39));
  EXPECT_TRUE(fresh.holds(memory.data() + 40));
  EXPECT_TRUE(fresh.holds(memory.data() + 59));
  EXPECT_FALSE(fresh.holds(memory.data() + 60));
  fresh.clear();
  EXPECT_FALSE(fresh.holds(memory.data() + 40));
}

TEST(FreshWeights, hold_all_that_was_packed_in_any_order) {
  std::array<std::byte, 100> memory{};
  FreshWeights fresh;
  fresh.add(memory.data() + 60, 10);
  fresh.add(memory.data() + 10, 10);
  fresh.add(memory.data() + 30, 5);
  EXPECT_TRUE(fresh.holds(memory.data() + 10));
  EXPECT_TRUE(fresh.holds(memory.data() + 34));
  EXPECT_TRUE(fresh.holds(memory.data() + 69));
  EXPECT_FALSE(fresh.holds(memory.data() + 9));
  EXPECT_FALSE(fresh.holds(memory.data() + 70));
  fresh.clear();
  fresh.add(memory.data() + 80, 10);
  EXPECT_FALSE(fresh.holds(memory.data() + 60));
}

}  // namespace
}  // namespace nightsweep::cuda
