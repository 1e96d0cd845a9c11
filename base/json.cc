#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

// Builds our value from nlohmann's events; it sees repeated keys, which a finished tree hides.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(size_t max_depth) : max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return put(Json(value));
  }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(size_t /*size*/) override { return open(Json(Json::Object{})); }
  bool key(string_t& value) override {
    if (levels_.back().has(value)) {
      throw JsonError(0, format("the key \"{}\" stands twice in one object", value));
    }
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t /*size*/) override { return open(Json(Json::Array{})); }
  bool end_array() override { return close(); }

  bool parse_error(
      size_t position,
      const std::string& /*token*/,
      const nlohmann::detail::exception& error) override {
    std::string text = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while …"
    if (size_t at = text.find("] "); at != std::string::npos) text.erase(0, at + 2);
    if (size_t at = text.find("column"); at != std::string::npos) {
      if (size_t colon = text.find(": ", at); colon != std::string::npos) text.erase(0, colon + 2);
    }
    throw JsonError(position == 0 ? 0 : position - 1, text);
  }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;  // of a large object

    // Whether the object has the key; a large one remembers it from here on.
    bool has(const std::string& wanted) {
      constexpr size_t kLarge = 16;  // below, comparing is faster than hashing
      const Json::Object& members = value.as_object();
      if (members.size() < kLarge) {
        return std::any_of(members.begin(), members.end(), [&](const Json::Member& member) {
          return member.first == wanted;
        });
      }
      if (keys.empty()) {
        for (const Json::Member& member : members)
          keys.insert(member.first);
      }
      return !keys.insert(wanted).second;
    }
  };

  bool put(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (levels_.back().value.is_array()) {
      levels_.back().value.push_back(std::move(value));
    } else {
      levels_.back().value.as_object().emplace_back(
          std::move(levels_.back().key), std::move(value));
    }
    return true;
  }
  bool open(Json value) {
    if (levels_.size() >= max_depth_) {
      throw JsonError(0, format("nested deeper than {} levels", max_depth_));
    }
    levels_.push_back({.value = std::move(value), .key = {}, .keys = {}});
    return true;
  }
  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return put(std::move(value));
  }

  size_t max_depth_;
  Json root_;
  std::vector<Level> levels_;
};

nlohmann::ordered_json to_library(const Json& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_integer()) return value.as_integer();
  if (value.is_double()) return value.as_double();
  if (value.is_string()) return value.as_string();
  if (value.is_array()) {
    auto array = nlohmann::ordered_json::array();
    for (const Json& element : value.as_array())
      array.push_back(to_library(element));
    return array;
  }
  if (value.is_object()) {
    auto object = nlohmann::ordered_json::object();
    // Keys are unique by construction: append without ordered_map's linear search.
    auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
    for (const auto& [key, member] : value.as_object()) {
      members.Container::emplace_back(key, to_library(member));
    }
    return object;
  }
  return nullptr;
}

std::string dump_with(const Json& value, int indent) {
  return to_library(value).dump(
      indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(INT64_MAX)) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = static_cast<double>(value);
  }
}

Json Json::parse(std::string_view text, size_t max_depth) {
  // The library takes a NUL for the end of its input, and passes over a byte order mark.
  if (size_t at = text.find('\0'); at != std::string_view::npos) {
    throw JsonError(at, "a raw NUL byte is not JSON (write \\u0000 in a string)");
  }
  if (text.starts_with("\xEF\xBB\xBF")) throw JsonError(0, "a byte order mark is not JSON");
  Builder builder(max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string Json::kind_text() const {
  if (is_null()) return "null";
  if (is_bool()) return as_bool() ? "true" : "false";
  if (is_number()) return "the number " + dump();
  if (is_string()) return "a string";
  return is_array() ? "an array" : "an object";
}

bool Json::to_integer(int64_t& out) const {
  if (is_integer()) {
    out = as_integer();
    return true;
  }
  if (!is_double()) return false;
  double value = as_double();
  if (value != std::floor(value) || value < -kTwoTo63 || value >= kTwoTo63) return false;
  out = static_cast<int64_t>(value);
  return true;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, old] : as_object()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  as_object().emplace_back(std::string(key), std::move(value));
}

std::string Json::dump() const {
  return dump_with(*this, -1);
}

std::string Json::dump_pretty() const {
  return dump_with(*this, 2);
}

}  // namespace nightsweep
