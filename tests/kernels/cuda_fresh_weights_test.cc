#include <gtest/gtest.h>

#include <array>

#include "kernels/cuda/fresh_weights.h"

namespace nightsweep::cuda {
namespace {

// Needs no GPU.
TEST(FreshWeights, hold_what_was_packed_until_the_stream_is_waited_for) {
  std::array<std::byte, 100> memory{};
  FreshWeights fresh;
  EXPECT_FALSE(fresh.holds(memory.data(), 1));
  fresh.add(memory.data() + 40, 20);
  EXPECT_FALSE(fresh.holds(memory.data() + 39, 1));
  EXPECT_TRUE(fresh.holds(memory.data() + 40, 1));
  EXPECT_TRUE(fresh.holds(memory.data() + 59, 1));
  EXPECT_FALSE(fresh.holds(memory.data() + 60, 1));
  // A matrix that begins before, and one that ends where the fresh ones begin.
  EXPECT_TRUE(fresh.holds(memory.data() + 10, 31));
  EXPECT_TRUE(fresh.holds(memory.data() + 10, 90));
  EXPECT_FALSE(fresh.holds(memory.data() + 10, 30));
  fresh.clear();
  EXPECT_FALSE(fresh.holds(memory.data() + 40, 1));
  EXPECT_FALSE(fresh.holds(memory.data(), 100));
}

TEST(FreshWeights, hold_all_that_was_packed_in_any_order) {
  std::array<std::byte, 100> memory{};
  FreshWeights fresh;
  fresh.add(memory.data() + 60, 10);
  fresh.add(memory.data() + 10, 10);
  fresh.add(memory.data() + 30, 5);
  EXPECT_TRUE(fresh.holds(memory.data() + 10, 1));
  EXPECT_TRUE(fresh.holds(memory.data() + 34, 1));
  EXPECT_TRUE(fresh.holds(memory.data() + 69, 1));
  EXPECT_FALSE(fresh.holds(memory.data() + 9, 1));
  EXPECT_FALSE(fresh.holds(memory.data() + 70, 1));
  fresh.clear();
  fresh.add(memory.data() + 80, 10);
  EXPECT_FALSE(fresh.holds(memory.data() + 60, 1));
}

}  // namespace
}  // namespace nightsweep::cuda
