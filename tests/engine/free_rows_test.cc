#include "engine/free_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nightsweep {
namespace {

// What a sweep takes on a machine whose link is busy for `traffic_s` at its best.
struct Machine {
  double traffic_s;
  double slowness;  // of the link as it is used
  double fixed_s;   // of computing
  double row_s;

  double sweep_s(uint32_t rows) const {
    return std::max(traffic_s * slowness, fixed_s + row_s * rows);
  }
  double free_rows() const { return (traffic_s * slowness - fixed_s) / row_s; }
};

// 70B in 24 GiB of an H200 and of a 3090 behind PCIe 3.0 x8, and 8B whose link is slower than told.
constexpr Machine kMachines[] = {
    {0.39, 1.0, 0.03, 3.0e-4},
    {3.3, 1.02, 0.1, 1.4e-3},
    {0.1, 1.15, 0.01, 4.0e-5}};

constexpr uint32_t kAnswers = 64;

uint32_t sweep(FreeRows& free, const Machine& machine, uint32_t most) {
  const uint32_t rows = std::min(std::max(free.rows(), FreeRows::kLeast + kAnswers), most);
  free.note(
      {.rows = rows,
       .prompt_rows = rows - kAnswers,
       .seconds = machine.sweep_s(rows),
       .traffic_s = machine.traffic_s});
  return rows;
}

TEST(FreeRows, are_not_known_before_a_sweep_had_too_many) {
  FreeRows free;
  EXPECT_EQ(free.rows(), UINT32_MAX);
  for (const uint32_t rows : {1U, 64U, 600U, 8192U})
    free.note({.rows = rows, .prompt_rows = rows - 1, .seconds = 1.01, .traffic_s = 1});
  EXPECT_FALSE(free.is_known());
  free.note({.rows = 8192, .prompt_rows = 8192, .seconds = 5, .traffic_s = 0});  // nothing streams
  EXPECT_FALSE(free.is_known());
  free.note({.rows = 2000, .prompt_rows = 2000, .seconds = 2, .traffic_s = 1});
  EXPECT_NEAR(free.rows(), 1000, 10);
}

TEST(FreeRows, come_to_what_the_machine_computes_and_stay_there) {
  for (const Machine& machine : kMachines) {
    FreeRows free;
    for (int i = 0; i < 20; ++i)
      free.note(
          {.rows = kAnswers, .seconds = machine.sweep_s(kAnswers), .traffic_s = machine.traffic_s});
    for (int i = 0; i < 300; ++i) {
      const uint32_t rows = sweep(free, machine, 8192);
      if (i < 40) continue;
      EXPECT_GT(rows, 0.95 * machine.free_rows()) << i;
      EXPECT_LT(rows, 1.25 * machine.free_rows()) << i;
    }
  }
}

TEST(FreeRows, forget_a_sweep_that_something_else_held_up) {
  for (const Machine& machine : kMachines) {
    FreeRows free;
    for (int i = 0; i < 60; ++i)
      sweep(free, machine, 8192);
    for (int i = 0; i < 5; ++i)
      free.note({.rows = 1000, .prompt_rows = 1000, .seconds = 60, .traffic_s = machine.traffic_s});
    EXPECT_LT(free.rows(), 0.5 * machine.free_rows());
    EXPECT_GE(free.rows(), FreeRows::kLeast);
    for (int i = 0; i < 60; ++i)
      sweep(free, machine, 8192);
    EXPECT_GT(free.rows(), 0.95 * machine.free_rows());
  }
}

// Where a step has no more rows than are free there is nothing to learn.
TEST(FreeRows, stay_unknown_where_steps_are_narrower) {
  FreeRows free;
  for (int i = 0; i < 100; ++i)
    sweep(free, kMachines[1], 2048);
  EXPECT_FALSE(free.is_known());
}

TEST(FreeRows, traffic_is_that_of_the_slower_way_under_its_throttle) {
  const StreamStats before{.filled_bytes = 5, .streamed_bytes = 100, .copied_bytes = 1000};
  StreamStats after = before;
  after.streamed_bytes += 200;
  after.copied_bytes += 3000;
  EXPECT_EQ(traffic_seconds(before, after, 0, 0), 0) << "no rate is known";
  after.measured_link_rate = 1000;
  after.measured_disk_rate = 100;
  EXPECT_EQ(traffic_seconds(before, after, 0, 0), 3);
  EXPECT_EQ(traffic_seconds(before, after, 500, 0), 6);
  EXPECT_EQ(traffic_seconds(before, after, 5000, 0), 3);
  EXPECT_EQ(traffic_seconds(before, after, 0, 20), 10);
  after.filled_bytes += 1;
  EXPECT_EQ(traffic_seconds(before, after, 0, 0), 0) << "weights came for the first time";
}

}  // namespace
}  // namespace nightsweep
