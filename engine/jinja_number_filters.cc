// Filters that make numbers.
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_number_spec.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_text.h"

namespace nightsweep::jinja {
namespace {

// Without blanks around, a plus sign in front, and single underscores between digits; nothing when
// an underscore stands elsewhere.
std::optional<std::string> cleaned_number(std::string_view text) {
  std::string stripped = strip(MarkedString(std::string(text)), nullptr, true, true).bytes();
  std::string result;
  auto is_alnum_at = [&](size_t i) {
    return i < stripped.size() && std::isalnum(static_cast<unsigned char>(stripped[i])) != 0;
  };
  for (size_t i = 0; i < stripped.size(); ++i) {
    if (stripped[i] == '_') {
      if (i == 0 || !is_alnum_at(i - 1) || !is_alnum_at(i + 1)) return std::nullopt;
    } else {
      result.push_back(stripped[i]);
    }
  }
  if (result.starts_with('+')) {
    result.erase(0, 1);
    if (result.starts_with('-')) return std::nullopt;
  }
  return result;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  auto number = cleaned_number(text);
  if (!number) return std::nullopt;
  bool is_negative = number->starts_with('-');
  std::string digits = number->substr(is_negative ? 1 : 0);
  if (digits.size() > 2 && digits[0] == '0') {
    char letter = static_cast<char>(digits[1] | 0x20);
    int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      digits.erase(0, 2);
      base = named;
    }
  }
  if (base == 0) base = 10;
  if (is_negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  auto result = std::from_chars(digits.data(), end, value, base);
  bool has_second_sign = is_negative && digits.starts_with("--");
  if (result.ec != std::errc{} || result.ptr != end || has_second_sign) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  auto number = cleaned_number(text);
  if (!number || number->find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  const char* end = number->data() + number->size();
  auto result = std::from_chars(number->data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large or too small to hold: Python gives an infinity or zero.
    bool is_tiny =
        number->find("e-") != std::string::npos || number->find("E-") != std::string::npos;
    value = is_tiny ? 0.0 : HUGE_VAL;
    if (number->starts_with('-')) value = -value;
  }
  return value;
}

std::optional<int64_t> integer_of(double value) {
  if (!(std::abs(value) < 9.2233720368547758e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value filter_int(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "int", arguments, {"default", "base"});
  runtime.refuse_undefined(self);
  Value fallback = parameters.value_or(0, Value::integer(0));
  int64_t base = parameters.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) runtime.error("int: base must be 0 or 2 to 36");
  if (self.is_integral()) return Value::integer(self.as_integer());
  std::optional<double> real;
  if (self.is(Kind::real)) real = self.as_real();
  if (self.is_text()) {
    const std::string& text = self.text().bytes();
    if (auto value = parse_integer(text, static_cast<int>(base))) return Value::integer(*value);
    real = parse_real(text);
  }
  if (!real) return fallback;
  auto value = integer_of(*real);
  return value ? Value::integer(*value) : fallback;
}

Value filter_float(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "float", arguments, {"default"});
  runtime.refuse_undefined(self);
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is_text()) {
    if (auto value = parse_real(self.text().bytes())) return Value::real(*value);
  }
  return parameters.value_or(0, Value::real(0.0));
}

Value filter_abs(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "abs", arguments, {});
  runtime.refuse_undefined(self);
  if (!self.is_number()) {
    runtime.error(format("bad operand type for abs(): '{}'", runtime.type_name(self)));
  }
  if (self.is(Kind::real)) return Value::real(std::abs(self.as_real()));
  return self.as_integer() < 0 ? apply_unary(runtime, UnaryOperator::negate, self)
                               : Value::integer(self.as_integer());
}

Value round_integer(Runtime& runtime, int64_t value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  int64_t unit = 1;
  for (int64_t i = precision; i < 0; ++i)
    unit *= 10;
  int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  int64_t down = 0;
  if (__builtin_sub_overflow(value, rest, &down))
    runtime.error("an integer leaves the range of 64 bits");
  bool is_down_even = (down / unit) % 2 == 0;
  bool goes_up = rest > unit - rest || (rest == unit - rest && !is_down_even);
  Value down_value = Value::integer(down);
  return goes_up ? apply_binary(runtime, BinaryOperator::add, down_value, Value::integer(unit))
                 : down_value;
}

double round_real(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision < 0) {
    if (precision < -308) return std::copysign(0.0, value);
    double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  // Through decimal digits, as Python does: the nearest of the exact value.
  std::string digits = print_fixed(value, static_cast<int>(precision));
  double result = value;
  std::from_chars(digits.data(), digits.data() + digits.size(), result);
  return result;
}

Value filter_round(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "round", arguments, {"precision", "method"});
  runtime.refuse_undefined(self);
  int64_t precision = parameters.integer(0, 0);
  std::string_view method = parameters.bytes_or(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    runtime.error("round: the method must be common, ceil or floor");
  }
  if (!self.is_number()) {
    runtime.error(format("round: a number is needed, found {}", runtime.type_name(self)));
  }
  if (method == "common") {
    return self.is_integral() ? round_integer(runtime, self.as_integer(), precision)
                              : Value::real(round_real(self.as_real(), precision));
  }
  Value unit =
      apply_binary(runtime, BinaryOperator::power, Value::integer(10), Value::integer(precision));
  double scaled = apply_binary(runtime, BinaryOperator::multiply, self, unit).as_real();
  double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole)) runtime.error("round: the number is not finite");
  return Value::real(whole / unit.as_real());
}

constexpr std::array kNumberFilters{
    Builtin{"abs", filter_abs},
    Builtin{"float", filter_float},
    Builtin{"int", filter_int},
    Builtin{"round", filter_round},
};

}  // namespace

std::span<const Builtin> number_filters() {
  return kNumberFilters;
}

}  // namespace nightsweep::jinja
