#include "jobs/field.h"

#include <limits>

#include "base/format.h"
#include "jobs/utf8.h"

namespace nightsweep {

namespace {

std::string integer_range_text(int64_t min, int64_t max) {
  bool is_open_below = min == std::numeric_limits<int64_t>::min();
  bool is_open_above = max == std::numeric_limits<int64_t>::max();
  if (is_open_below && is_open_above) return "an integer from -2^63 to 2^63-1";
  if (is_open_above) return format("an integer of at least {}", min);
  return format("an integer from {} to {}", min, max);
}

}  // namespace

std::string found_text(const Json& value) {
  if (value.is_string()) return format("\"{}\"", printable(value.as_string()));
  return value.kind_text();
}

std::string key_text(std::string_view key) {
  return printable(key);
}

Field Field::element(size_t index) const {
  return {format("{}[{}]", path_, index), value_->as_array()[index]};
}

Field Field::member(std::string_view key, const Json& of_it) const {
  return {member_path(key), of_it};
}

std::string Field::member_path(std::string_view key) const {
  return format("{}.{}", path_, key_text(key));
}

bool Field::boolean() const {
  if (!value_->is_bool()) refuse(code::kInvalidType, "true or false");
  return value_->as_bool();
}

int64_t Field::integer(int64_t min, int64_t max) const {
  int64_t number = 0;
  // The parser makes a double of an integer literal below -2^63, and that rounds to -2^63.
  bool is_rounded = value_->is_double() && value_->as_double() == -0x1p63;
  if (is_rounded || !value_->to_integer(number)) {
    refuse(
        value_->is_number() ? code::kInvalidValue : code::kInvalidType,
        integer_range_text(min, max));
  }
  if (number < min || number > max) refuse(code::kInvalidValue, integer_range_text(min, max));
  return number;
}

double Field::number(double min, double max) const {
  std::string expected = format("a number from {} to {}", min, max);
  if (!value_->is_number()) refuse(code::kInvalidType, expected);
  double number = value_->as_double();
  if (!(number >= min && number <= max)) refuse(code::kInvalidValue, expected);
  return number + 0.0;  // one zero: -0.0 becomes 0.0
}

double Field::number_above(double low, double max) const {
  bool is_open_above = max == std::numeric_limits<double>::max();
  std::string expected = is_open_above ? format("a number above {}", low)
                                       : format("a number above {} and at most {}", low, max);
  if (!value_->is_number()) refuse(code::kInvalidType, expected);
  double number = value_->as_double();
  if (!(number > low && number <= max)) refuse(code::kInvalidValue, expected);
  return number;
}

const std::string& Field::string() const {
  if (!value_->is_string()) refuse(code::kInvalidType, "a string");
  return value_->as_string();
}

const Json::Array& Field::array(std::string_view expected) const {
  if (!value_->is_array()) refuse(code::kInvalidType, expected);
  return value_->as_array();
}

const Json::Object& Field::object() const {
  if (!value_->is_object()) refuse(code::kInvalidType, "an object");
  return value_->as_object();
}

void Field::refuse(const char* code, std::string_view expected) const {
  throw Refusal{path_, format("expected {}, found {}", expected, found_text(*value_)), code};
}

}  // namespace nightsweep
