#include "base/units.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace nightsweep {

namespace {

double unit_factor(std::string_view unit, std::string_view text, std::string_view option) {
  struct Unit {
    std::string_view name;
    double factor;
  };
  constexpr double kKibi = 1024.0;
  constexpr Unit kUnits[] = {
      {"", 1},
      {"B", 1},
      {"KB", 1e3},
      {"kB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", kKibi},
      {"MiB", kKibi * kKibi},
      {"GiB", kKibi * kKibi * kKibi},
      {"TiB", kKibi * kKibi * kKibi * kKibi},
      {"K", kKibi},
      {"M", kKibi * kKibi},
      {"G", kKibi * kKibi * kKibi},
      {"T", kKibi * kKibi * kKibi * kKibi},
  };
  for (const Unit& known : kUnits) {
    if (known.name == unit) return known.factor;
  }
  fail(ErrorKind::usage, "{}: expected a size such as 500MB or 22GiB, found '{}'", option, text);
}

double parse_amount(std::string_view text, std::string_view option) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0) || !std::isfinite(number)) {
    fail(ErrorKind::usage, "{}: expected a size such as 500MB or 22GiB, found '{}'", option, text);
  }
  std::string_view unit(end, text.data() + text.size() - end);
  while (!unit.empty() && unit.front() == ' ')
    unit.remove_prefix(1);
  double amount = number * unit_factor(unit, text, option);
  if (amount > 9e18) fail(ErrorKind::usage, "{}: '{}' is too large", option, text);
  return amount;
}

}  // namespace

uint64_t parse_size(std::string_view text, std::string_view option) {
  return static_cast<uint64_t>(parse_amount(text, option));
}

double parse_rate(std::string_view text, std::string_view option) {
  std::string_view amount = text;
  if (amount.ends_with("/s")) amount.remove_suffix(2);
  double rate = parse_amount(amount, option);
  if (rate <= 0) fail(ErrorKind::usage, "{}: expected a rate above 0, found '{}'", option, text);
  return rate;
}

double parse_duration(std::string_view text, std::string_view option) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, text.data() + text.size() - end);
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  for (const auto& [name, seconds] : kUnits) {
    if (error == std::errc() && unit == name && number > 0 && number * seconds < 1e10) {
      return number * seconds;
    }
  }
  fail(
      ErrorKind::usage, "{}: expected a duration such as 90s, 15min, 24h or 7d, found '{}'", option,
      text);
}

std::string size_text(uint64_t size_bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(size_bytes);
  int unit = 0;
  while (amount >= 1024 && unit < 4) {
    amount /= 1024;
    ++unit;
  }
  if (unit == 0) return format("{} B", size_bytes);
  int digits = amount < 10 ? 2 : amount < 100 ? 1 : 0;
  return format("{:.{}f} {}", amount, digits, kNames[unit]);
}

std::string rate_text(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return format("{:.2f} GB/s", bytes_per_s / 1e9);
  if (bytes_per_s >= 1e6) return format("{:.1f} MB/s", bytes_per_s / 1e6);
  return format("{:.1f} kB/s", bytes_per_s / 1e3);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "unknown";
  if (seconds < 60) return format("{:.1f} s", seconds);
  auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 48 * 3600) return format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

}  // namespace nightsweep
