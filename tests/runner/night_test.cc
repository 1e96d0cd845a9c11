#include "runner/night.h"

#include <gtest/gtest.h>

namespace nightsweep {
namespace {

constexpr int64_t kHour = 3'600'000;

SweepRecord record(int64_t begin_ms, const std::string& binding, double share) {
  SweepRecord record;
  record.begin_ms = begin_ms;
  record.end_ms = begin_ms + 10'000;
  record.n_sweeps = 4;
  record.prefill_tokens = 200;
  record.new_tokens = 100;
  record.sweep_s = 10;
  record.binding = binding;
  if (binding == "link") record.link_share = share;
  if (binding == "disk") record.disk_share = share;
  return record;
}

TEST(TheNight, is_the_sum_since_the_last_long_pause) {
  EXPECT_EQ(night_of({}), std::nullopt);
  std::vector<SweepRecord> records = {
      record(0, "disk", 0.9),  // the night before
      record(5 * kHour, "link", 1.0),
      record(5 * kHour + 10'000, "link", 0.9),
      record(6 * kHour, "device", 0),
  };
  const Night night = *night_of(records);
  EXPECT_EQ(night.begin_ms, 5 * kHour);
  EXPECT_EQ(night.end_ms, 6 * kHour + 10'000);
  EXPECT_EQ(night.n_sweeps, 12U);
  EXPECT_EQ(night.generated_tokens, 300U);
  EXPECT_EQ(night.prompt_tokens, 600U);
  EXPECT_DOUBLE_EQ(night.tokens_per_s(), 10);
  EXPECT_EQ(night.binding, "link");
  EXPECT_DOUBLE_EQ(night.share, 0.95);
  EXPECT_EQ(
      night_text(night, "22:00"),
      "since 22:00: 300 tokens generated in 12 sweeps, 10.0 tokens/s; 600 prompt tokens\n"
      "the link binds, at 95% of its measured rate\n");
}

TEST(TheNight, counts_joules_over_the_tokens_that_were_measured) {
  std::vector<SweepRecord> records = {record(0, "device", 0), record(10'000, "device", 0)};
  Night night = *night_of(records);
  EXPECT_LT(night.energy_j, 0);
  EXPECT_TRUE(night_json(night).find("joules_per_token")->is_null());
  EXPECT_TRUE(night_json(night).find("share")->is_null());
  records[1].energy_j = 50;
  records[1].shared_tokens = 128;
  night = *night_of(records);
  EXPECT_DOUBLE_EQ(night.energy_j, 50);
  EXPECT_DOUBLE_EQ(night.joules_per_token, 0.5);
  EXPECT_EQ(
      night_text(night, "22:00"),
      "since 22:00: 200 tokens generated in 8 sweeps, 10.0 tokens/s; 400 prompt tokens, 128 more "
      "shared\nthe device's arithmetic binds; 0.50 J a token\n");
}

}  // namespace
}  // namespace nightsweep
