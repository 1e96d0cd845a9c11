#include "engine/jinja_number_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_text.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

std::string printed(const char* directive, int precision, double value) {
  int n = std::snprintf(nullptr, 0, directive, precision, value);
  std::string text(static_cast<size_t>(n), '\0');
  std::snprintf(text.data(), text.size() + 1, directive, precision, value);
  return text;
}

// Digits in threes (fours for bases of two), counted from the point.
std::string grouped(const std::string& digits, const NumberSpec& spec) {
  bool is_binary = spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
  size_t size = is_binary ? 4 : 3;
  size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string result;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) result.push_back(spec.group);
    result.push_back(digits[i]);
  }
  return result + digits.substr(whole);
}

std::string
padded(bool is_negative, std::string prefix, std::string digits, const NumberSpec& spec) {
  if (spec.group != '\0') digits = grouped(digits, spec);
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  prefix = sign + prefix;
  if (spec.align == '=') {
    auto width = static_cast<int64_t>(spec.width) - static_cast<int64_t>(prefix.size());
    return prefix + pad(MarkedString(digits), width, Align::right, spec.fill).bytes();
  }
  MarkedString text(prefix + digits);
  if (spec.align == '^') {
    auto missing = spec.width - static_cast<int64_t>(text.size());
    text = pad(text, spec.width - (missing + 1) / 2, Align::right, spec.fill);
  }
  bool is_left = spec.align == '<' || spec.align == '^';
  return pad(text, spec.width, is_left ? Align::left : Align::right, spec.fill).bytes();
}

}  // namespace

std::string print_fixed(double value, int precision) {
  return printed("%.*f", precision, value);
}

std::string parse_number_spec(std::string_view text, NumberSpec& spec) {
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0;
  size_t after_fill = 0;
  if (!text.empty()) next_point(text, after_fill);
  if (after_fill < text.size() && is_align(text[after_fill])) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    at = after_fill + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  auto number = [&] {
    int n = 0;
    while (peek() >= '0' && peek() <= '9')
      n = std::min(n * 10 + (text[at++] - '0'), kMaxWidth + 1);
    return n;
  };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') {
    spec.is_alternate = true;
    ++at;
  }
  if (peek() == '0') {
    if (spec.align == '\0') {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    ++at;
  }
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.group = text[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') return "Format specifier missing precision";
    spec.precision = number();
  }
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) return "a format is too wide";
  if (at < text.size()) spec.type = text[at++];
  return at < text.size() ? format("Invalid format specifier '{}'", text) : std::string();
}

std::string print_integer(int64_t value, const NumberSpec& spec) {
  uint64_t magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case 'x':
      digits = format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = format("{:o}", magnitude);
      prefix = "0o";
      break;
    case 'b':
      digits = format("{:b}", magnitude);
      prefix = "0b";
      break;
    default:
      digits = format("{}", magnitude);
  }
  if (spec.precision > static_cast<int>(digits.size())) {  // of % only
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  return padded(value < 0, spec.is_alternate ? prefix : "", digits, spec);
}

std::string print_real(double value, const NumberSpec& spec) {
  bool is_negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::abs(value);
  int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string digits;
  switch (spec.type) {
    case 'e':
      digits = printed(spec.is_alternate ? "%#.*e" : "%.*e", precision, magnitude);
      break;
    case 'E':
      digits = printed(spec.is_alternate ? "%#.*E" : "%.*E", precision, magnitude);
      break;
    case 'f':
      digits = printed(spec.is_alternate ? "%#.*f" : "%.*f", precision, magnitude);
      break;
    case 'F':
      digits = printed(spec.is_alternate ? "%#.*F" : "%.*F", precision, magnitude);
      break;
    case 'G':
      digits = printed(spec.is_alternate ? "%#.*G" : "%.*G", precision, magnitude);
      break;
    case '%':
      digits = printed("%.*f", precision, magnitude * 100) + "%";
      break;
    case '\0':
      if (spec.precision < 0) {
        digits = print_real(magnitude);
        break;
      }
      digits = printed("%.*g", precision, magnitude);
      // Without a type the text stays one of a float.
      if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
      break;
    default:
      digits = printed(spec.is_alternate ? "%#.*g" : "%.*g", precision, magnitude);
  }
  return padded(is_negative, "", digits, spec);
}

}  // namespace nightsweep::jinja
