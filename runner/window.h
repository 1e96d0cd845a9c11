// When the worker may work: windows of the day, by the wall clock of a time zone.
//
// What counts is the clock on the wall now, looked at again and again. So a night over midnight,
// the hour that is missing or doubled when daylight saving begins or ends, a clock that was set,
// and a suspend need no care: a window is open whenever the wall clock shows a time in it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nightsweep {

class RunWindows {
 public:
  // "22:00-07:00", "Mon-Fri 22:00-06:30", "Sat,Sun 00:00-24:00 Europe/Vienna"; several in one text
  // are parted by ';'. Weekdays are those on which a window begins. Without a zone the system's
  // counts. An end that is not after its begin is on the next day. Throws Error(usage) naming
  // `option`.
  static RunWindows parse(const std::vector<std::string>& texts, const std::string& option);

  // No window at all: always open.
  bool is_open(int64_t unix_s) const;
  // "22:00", "Mon 22:00" when that is not within a day. Empty: open, or never again within 8 days.
  std::string next_opening(int64_t unix_s) const;

 private:
  struct Window {
    std::array<bool, 7> days{};  // from Sunday
    int begin_minute = 0;
    int end_minute = 0;
    std::string zone;  // empty: the system's
  };
  struct WallTime {
    int weekday = 0;  // from Sunday
    int minute = 0;   // of the day
  };
  static Window parse_one(const std::string& text, const std::string& option);
  static WallTime wall_time(const std::string& zone, int64_t unix_s);
  static bool is_in(const Window& window, int64_t unix_s);

  std::vector<Window> windows_;
};

}  // namespace nightsweep
