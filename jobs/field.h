// One field of a request line: its value under its path, read with a check of kind and range.
// Private to jobs/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nightsweep {

// Thrown by the readers of a line and turned into a LineError by parse_line; it never leaves jobs/.
struct Refusal {
  std::string field;
  std::string message;
  std::string code;
};

namespace code {
constexpr const char* kInvalidJson = "invalid_json";
constexpr const char* kInvalidType = "invalid_type";
constexpr const char* kInvalidValue = "invalid_value";
constexpr const char* kMissing = "missing_required_parameter";
constexpr const char* kUnknownParameter = "unknown_parameter";
constexpr const char* kUnsupportedParameter = "unsupported_parameter";
constexpr const char* kUnsupportedValue = "unsupported_value";
constexpr const char* kLineTooLong = "line_too_long";
constexpr const char* kModelNotFound = "model_not_found";
}  // namespace code

class Field {
 public:
  // REQUIRES: `value` outlives the field.
  Field(std::string path, const Json& value) : path_(std::move(path)), value_(&value) {}

  const std::string& path() const { return path_; }
  const Json& value() const { return *value_; }

  Field element(size_t index) const;                            // PATH[index]
  Field member(std::string_view key, const Json& of_it) const;  // PATH.key
  std::string member_path(std::string_view key) const;

  // All throw Refusal when the value is of another kind or outside of the range. 2.0 and 1e2 are
  // integers.
  bool boolean() const;
  int64_t integer(int64_t min, int64_t max) const;
  double number(double min, double max) const;
  double number_above(double low, double max) const;  // low itself is excluded
  const std::string& string() const;
  const Json::Array& array(std::string_view expected) const;
  const Json::Object& object() const;

  // "expected EXPECTED, found VALUE".
  [[noreturn]] void refuse(const char* code, std::string_view expected) const;

 private:
  std::string path_;
  const Json* value_;
};

// The value for "found ...": a text is quoted in short.
std::string found_text(const Json& value);
// A key as part of a path or message.
std::string key_text(std::string_view key);

}  // namespace nightsweep
