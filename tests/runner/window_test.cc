#include "runner/window.h"

#include "support/expect_error.h"

namespace nightsweep {
namespace {

// date -u -d TEXT +%s
constexpr int64_t kMonday = 1'798'416'000;  // 2026-12-28 00:00 UTC, a Monday
constexpr int64_t kHourSeconds = 3600;
constexpr int64_t kDay = 24 * kHourSeconds;

RunWindows windows(const std::vector<std::string>& texts) {
  return RunWindows::parse(texts, "--window");
}

TEST(Windows, none_is_always_open) {
  EXPECT_TRUE(windows({}).is_open(kMonday));
  EXPECT_EQ(windows({}).next_opening(kMonday), "");
}

TEST(Windows, a_night_goes_over_midnight) {
  RunWindows night = windows({"22:00-07:00 UTC"});
  EXPECT_FALSE(night.is_open(kMonday + 7 * kHourSeconds));
  EXPECT_FALSE(night.is_open(kMonday + 22 * kHourSeconds - 1));
  EXPECT_TRUE(night.is_open(kMonday + 22 * kHourSeconds));
  EXPECT_TRUE(night.is_open(kMonday + 24 * kHourSeconds));
  EXPECT_TRUE(night.is_open(kMonday + 31 * kHourSeconds - 1));
  EXPECT_FALSE(night.is_open(kMonday + 31 * kHourSeconds));
  EXPECT_EQ(night.next_opening(kMonday + 12 * kHourSeconds), "22:00");
}

TEST(Windows, weekdays_are_those_of_the_begin) {
  RunWindows work = windows({"Mon-Fri 22:00-07:00 UTC"});
  EXPECT_FALSE(work.is_open(kMonday + 1 * kHourSeconds)) << "it would have begun on Sunday";
  EXPECT_TRUE(work.is_open(kMonday + 23 * kHourSeconds));
  EXPECT_TRUE(work.is_open(kMonday + 5 * kDay + 6 * kHourSeconds)) << "Saturday morning";
  EXPECT_FALSE(work.is_open(kMonday + 5 * kDay + 23 * kHourSeconds));
  EXPECT_EQ(work.next_opening(kMonday + 5 * kDay + 8 * kHourSeconds), "Mon 22:00");
  RunWindows rest = windows({"Sat,Sun 00:00-24:00 UTC"});
  EXPECT_TRUE(rest.is_open(kMonday - 1));
  EXPECT_FALSE(rest.is_open(kMonday));
  EXPECT_TRUE(rest.is_open(kMonday + 5 * kDay));
  RunWindows around = windows({"Fri-Mon 10:00-11:00 UTC"});
  EXPECT_TRUE(around.is_open(kMonday + 10 * kHourSeconds));
  EXPECT_FALSE(around.is_open(kMonday + kDay + 10 * kHourSeconds));
}

TEST(Windows, several_are_open_when_one_is) {
  RunWindows two = windows({"01:00-02:00 UTC;05:00-06:00 UTC", "12:00-13:00 UTC"});
  for (int hour : {1, 5, 12})
    EXPECT_TRUE(two.is_open(kMonday + hour * kHourSeconds)) << hour;
  for (int hour : {0, 2, 6, 13})
    EXPECT_FALSE(two.is_open(kMonday + hour * kHourSeconds)) << hour;
}

TEST(Windows, a_window_without_length_is_the_whole_day) {
  RunWindows day = windows({"22:00-22:00 UTC"});
  for (int hour = 0; hour < 24; ++hour)
    EXPECT_TRUE(day.is_open(kMonday + hour * kHourSeconds));
}

// In Vienna 2027-03-28 02:00 becomes 03:00 (01:00 UTC), 2027-10-31 03:00 becomes 02:00 (01:00 UTC).
TEST(Windows, summer_time_begins) {
  constexpr int64_t kChange = 1'806'195'600;  // 2027-03-28 01:00 UTC
  RunWindows night = windows({"22:00-07:00 Europe/Vienna"});
  EXPECT_TRUE(night.is_open(kChange - 1));
  EXPECT_TRUE(night.is_open(kChange));
  EXPECT_TRUE(night.is_open(kChange + 4 * kHourSeconds - 1));
  EXPECT_FALSE(night.is_open(kChange + 4 * kHourSeconds)) << "07:00 comes an hour early";
  RunWindows missing = windows({"02:15-02:45 Europe/Vienna"});
  for (int64_t minute = -120; minute < 120; ++minute)
    EXPECT_FALSE(missing.is_open(kChange + minute * 60)) << "that night has no such time";
  EXPECT_EQ(missing.next_opening(kChange), "02:15");
  RunWindows ends_inside = windows({"22:00-02:30 Europe/Vienna"});
  EXPECT_TRUE(ends_inside.is_open(kChange - 1));
  EXPECT_FALSE(ends_inside.is_open(kChange));
}

TEST(Windows, summer_time_ends) {
  constexpr int64_t kChange = 1'824'944'400;  // 2027-10-31 01:00 UTC
  RunWindows twice = windows({"02:15-02:45 Europe/Vienna"});
  int n_open = 0;
  for (int64_t minute = -120; minute < 120; ++minute)
    n_open += twice.is_open(kChange + minute * 60) ? 1 : 0;
  EXPECT_EQ(n_open, 60) << "that time is there twice";
  RunWindows night = windows({"22:00-07:00 Europe/Vienna"});
  EXPECT_TRUE(night.is_open(kChange + 5 * kHourSeconds - 1)) << "that night is an hour longer";
  EXPECT_FALSE(night.is_open(kChange + 5 * kHourSeconds));
}

TEST(Windows, what_is_no_window_is_refused_with_an_example) {
  for (const char* text :
       {"", "22:00", "22-07", "24:00-07:00", "22:60-07:00", "22:00-07:00 UTC x", "Mun 22:00-07:00",
        "Mon- 22:00-07:00", "2a:00-07:00", "22:00-25:00", "22:00 - 07:00"}) {
    EXPECT_THROW(windows({text, "x"}), Error) << text;
  }
  EXPECT_THROW(windows({"22:00-07:00 Mars/Olympus"}), Error);
}

}  // namespace
}  // namespace nightsweep
