// What a row of sweeps says of a stream. That rows are written: tests/runner/worker_test.cc.
#include "runner/sweep_log.h"

#include <gtest/gtest.h>

namespace nightsweep {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;

EngineStats stats_after(double seconds, uint64_t link_bytes, uint64_t disk_bytes) {
  EngineStats stats;
  stats.steps = 3;
  stats.prefill_tokens = 100;
  stats.decode_tokens = 20;
  stats.shared_tokens = 64;
  stats.evictions = 2;
  stats.step_s = seconds;
  stats.stream.resident_bytes = 7 * kGigabyte;
  stats.stream.copied_bytes = link_bytes;
  stats.stream.streamed_bytes = disk_bytes;
  stats.stream.wait_s = 1;
  stats.stream.copy_wait_s = 2;
  stats.stream.ring_wait_s = 3;
  stats.stream.read_busy_s = 4;
  stats.stream.measured_link_rate = 10.0 * kGigabyte;
  stats.stream.measured_disk_rate = 2.0 * kGigabyte;
  return stats;
}

TEST(SweepRecords, hold_what_was_done_between_two_looks) {
  EngineStats before = stats_after(5, 20 * kGigabyte, 2 * kGigabyte);
  EngineStats after = stats_after(15, 110 * kGigabyte, 12 * kGigabyte);
  after.steps = 5;
  after.prefill_tokens = 150;
  after.decode_tokens = 60;
  after.shared_tokens = 128;
  after.evictions = 3;
  after.stream.wait_s = 1.5;
  after.stream.copy_wait_s = 2.25;
  after.stream.ring_wait_s = 7;
  after.stream.read_busy_s = 9;
  const SweepRecord record = record_between(before, after);
  EXPECT_EQ(record.n_sweeps, 2U);
  EXPECT_EQ(record.prefill_tokens, 50U);
  EXPECT_EQ(record.decode_tokens, 40U);
  EXPECT_EQ(record.shared_tokens, 64U);
  EXPECT_EQ(record.evictions, 1U);
  EXPECT_DOUBLE_EQ(record.sweep_s, 10);
  EXPECT_EQ(record.resident_bytes, 14 * kGigabyte) << "in each sweep";
  EXPECT_EQ(record.link_bytes, 90 * kGigabyte);
  EXPECT_EQ(record.disk_bytes, 10 * kGigabyte);
  EXPECT_DOUBLE_EQ(record.wait_s, 0.5);
  EXPECT_DOUBLE_EQ(record.link_wait_s, 0.25);
  EXPECT_DOUBLE_EQ(record.ring_wait_s, 4);
  EXPECT_DOUBLE_EQ(record.disk_busy_s, 5);
  EXPECT_DOUBLE_EQ(record.link_share, 0.9);
  EXPECT_DOUBLE_EQ(record.disk_share, 0.5);
  EXPECT_EQ(record.binding, "link");
}

TEST(SweepRecords, say_which_of_link_disk_and_device_binds) {
  const auto record = [](uint64_t link_bytes, uint64_t disk_bytes) {
    return record_between({}, stats_after(10, link_bytes, disk_bytes));
  };
  EXPECT_EQ(record(60 * kGigabyte, 19 * kGigabyte).binding, "disk");
  EXPECT_EQ(record(40 * kGigabyte, 9 * kGigabyte).binding, "device");
  EXPECT_EQ(record(0, 11 * kGigabyte).binding, "disk");
  EXPECT_LT(record(0, 11 * kGigabyte).link_share, 0) << "nothing passed it";
  EXPECT_EQ(record(0, 0).binding, "device");
}

}  // namespace
}  // namespace nightsweep
