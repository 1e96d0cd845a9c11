#include "runner/window.h"

#include <date/tz.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr int kMinutesADay = 24 * 60;
constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};

std::optional<int> day_number(std::string_view name) {
  for (int day = 0; day < 7; ++day) {
    if (name == kDays[day]) return day;
  }
  return std::nullopt;
}

// "Mon-Fri", "Sat,Sun"
bool parse_days(std::string_view text, std::array<bool, 7>& days) {
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    size_t dash = part.find('-');
    auto first = day_number(part.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : day_number(part.substr(dash + 1));
    if (!first || !last) return false;
    for (int day = *first;; day = (day + 1) % 7) {
      days[static_cast<size_t>(day)] = true;
      if (day == *last) break;
    }
  }
  return true;
}

// "07:30"; -1: something else.
int parse_minute(std::string_view text) {
  if (text.size() != 5 || text[2] != ':') return -1;
  for (size_t at : {0, 1, 3, 4}) {
    if (text[at] < '0' || text[at] > '9') return -1;
  }
  int hour = (text[0] - '0') * 10 + text[1] - '0';
  int minute = (text[3] - '0') * 10 + text[4] - '0';
  int all = hour * 60 + minute;
  return minute < 60 && all <= kMinutesADay ? all : -1;
}

}  // namespace

RunWindows::Window RunWindows::parse_one(const std::string& text, const std::string& option) {
  std::istringstream words(text);
  std::vector<std::string> parts;
  for (std::string word; words >> word;)
    parts.push_back(word);
  Window window;
  size_t at = 0;
  bool is_good = !parts.empty();
  if (is_good && day_number(std::string_view(parts[0]).substr(0, 3))) {
    is_good = parse_days(parts[at++], window.days);
  } else {
    window.days.fill(true);
  }
  if (is_good && at < parts.size()) {
    std::string_view times = parts[at++];
    size_t dash = times.find('-');
    window.begin_minute = parse_minute(times.substr(0, dash));
    window.end_minute = dash == std::string_view::npos ? -1 : parse_minute(times.substr(dash + 1));
    is_good =
        window.begin_minute >= 0 && window.begin_minute < kMinutesADay && window.end_minute >= 0;
  } else {
    is_good = false;
  }
  if (is_good && at < parts.size()) window.zone = parts[at++];
  if (!is_good || at != parts.size()) {
    fail(
        ErrorKind::usage,
        "{}: expected [DAYS] HH:MM-HH:MM [ZONE], such as \"22:00-07:00\" or \"Mon-Fri 22:00-06:30 "
        "Europe/Vienna\", found '{}'",
        option, text);
  }
  if (!window.zone.empty()) {
    try {
      (void)date::locate_zone(window.zone);
    } catch (const std::exception&) {
      fail(
          ErrorKind::usage, "{}: expected a time zone such as Europe/Vienna, found '{}'", option,
          window.zone);
    }
  }
  return window;
}

RunWindows RunWindows::parse(const std::vector<std::string>& texts, const std::string& option) {
  RunWindows windows;
  for (const std::string& text : texts) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');)
      windows.windows_.push_back(parse_one(part, option));
  }
  return windows;
}

RunWindows::WallTime RunWindows::wall_time(const std::string& zone, int64_t unix_s) {
  int64_t local_s = 0;
  if (zone.empty()) {
    auto time = static_cast<std::time_t>(unix_s);
    std::tm local{};
    ::localtime_r(&time, &local);
    local_s = unix_s + local.tm_gmtoff;
  } else {
    date::sys_seconds now{std::chrono::seconds(unix_s)};
    local_s = unix_s + date::locate_zone(zone)->get_info(now).offset.count();
  }
  constexpr int64_t kDay = 86400;
  int64_t days = local_s / kDay - (local_s % kDay < 0 ? 1 : 0);
  constexpr int64_t kThursday = 4;  // 1970-01-01
  return {
      .weekday = static_cast<int>(((days + kThursday) % 7 + 7) % 7),
      .minute = static_cast<int>((local_s - days * kDay) / 60)};
}

bool RunWindows::is_in(const Window& window, int64_t unix_s) {
  WallTime now = wall_time(window.zone, unix_s);
  bool begins_today = window.days[static_cast<size_t>(now.weekday)];
  bool began_yesterday = window.days[static_cast<size_t>((now.weekday + 6) % 7)];
  if (window.end_minute > window.begin_minute) {
    return begins_today && now.minute >= window.begin_minute && now.minute < window.end_minute;
  }
  return (begins_today && now.minute >= window.begin_minute) ||
         (began_yesterday && now.minute < window.end_minute);
}

bool RunWindows::is_open(int64_t unix_s) const {
  return windows_.empty() || std::any_of(windows_.begin(), windows_.end(), [&](const Window& one) {
           return is_in(one, unix_s);
         });
}

std::string RunWindows::next_opening(int64_t unix_s) const {
  if (is_open(unix_s)) return {};
  constexpr int64_t kMinute = 60;
  constexpr int64_t kMostMinutes = 8 * kMinutesADay;
  int64_t from = unix_s - unix_s % kMinute;
  for (int64_t n = 1; n <= kMostMinutes; ++n) {
    int64_t then = from + n * kMinute;
    for (const Window& window : windows_) {
      if (!is_in(window, then)) continue;
      WallTime wall = wall_time(window.zone, then);
      std::string text = format("{:02}:{:02}", wall.minute / 60, wall.minute % 60);
      if (n >= kMinutesADay) text = format("{} {}", kDays[wall.weekday], text);
      return text;
    }
  }
  return {};
}

}  // namespace nightsweep
