// A JSON value, its strict parser and its writer.
//
// Strict means: a repeated key in an object, invalid UTF-8, a lone surrogate, a raw control
// character, NaN, Infinity and a number beyond double (1e400) are errors. Objects keep the order
// of their text. Parsing and writing are done by nlohmann/json behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nightsweep {

class JsonError : public std::runtime_error {
 public:
  JsonError(size_t offset, const std::string& text) : std::runtime_error(text), offset_(offset) {}
  // Byte of the text at which the error was seen, counted from 0.
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}                                        // NOLINT
  Json(bool value) : value_(value) {}                            // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}       // NOLINT
  Json(unsigned value) : value_(static_cast<int64_t>(value)) {}  // NOLINT
  Json(int64_t value) : value_(value) {}                         // NOLINT
  Json(uint64_t value);                                          // NOLINT
  Json(double value) : value_(value) {}                          // NOLINT
  Json(const char* value) : value_(std::string(value)) {}        // NOLINT
  Json(std::string value) : value_(std::move(value)) {}          // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}   // NOLINT
  Json(Array value) : value_(std::move(value)) {}                // NOLINT
  Json(Object value) : value_(std::move(value)) {}               // NOLINT

  // Throws JsonError. Nesting deeper than `max_depth` is an error.
  static Json parse(std::string_view text, size_t max_depth = 512);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_integer() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "a boolean", "the number 3", "a string", "an array", "an object": for messages.
  std::string kind_text() const;

  // REQUIRES: the value is of that kind.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_integer() const { return std::get<int64_t>(value_); }
  double as_double() const {
    return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_);
  }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // An integer, or a double without a fraction that fits (2.0, 1e2): true and sets `out`.
  bool to_integer(int64_t& out) const;

  // Member of an object; null when this is no object or has no such key.
  const Json* find(std::string_view key) const;
  // Replaces or appends a member. A null value becomes an object.
  void set(std::string_view key, Json value);
  void push_back(Json value) { as_array().push_back(std::move(value)); }

  // Compact, UTF-8 unescaped where JSON allows, shortest form of a double that reads back equal.
  // Bytes that are not UTF-8 are written as U+FFFD.
  std::string dump() const;
  // The same over several lines.
  std::string dump_pretty() const;

  bool operator==(const Json& other) const { return value_ == other.value_; }

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace nightsweep
