#include "runner/config.h"

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

enum class ValueKind { text, size, rate, count, flag, list };

struct KnownKey {
  const char* name;
  ValueKind kind;
};

constexpr KnownKey kKnownKeys[] = {
    {"queue", ValueKind::text},
    {"model", ValueKind::text},
    {"device", ValueKind::text},
    {"ram", ValueKind::size},
    {"vram", ValueKind::size},
    {"threads", ValueKind::count},
    {"batch", ValueKind::count},
    {"context", ValueKind::count},
    {"kv", ValueKind::text},
    {"math", ValueKind::text},
    {"source", ValueKind::text},
    {"link-rate", ValueKind::rate},
    {"disk-rate", ValueKind::rate},
    {"verify-numerics", ValueKind::flag},
    {"quiet", ValueKind::flag},
    {"verbose", ValueKind::flag},
    {"json", ValueKind::flag},
    {"color", ValueKind::text},
    {"window", ValueKind::list},
    {"model-wait", ValueKind::text},
    {"metrics-file", ValueKind::text},
    {"stop-file", ValueKind::text},
    {"yield-battery", ValueKind::text},
    {"yield-gpu", ValueKind::text},
};

const KnownKey* find_known(std::string_view name) {
  for (const KnownKey& key : kKnownKeys) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

const char* kind_text(toml::node_type type) {
  switch (type) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path)
      : path_(path), folder_(std::filesystem::path(path).parent_path()) {}

  Config read() {
    std::string text = read_whole_file(path_, ErrorKind::usage);
    toml::table table;
    try {
      table = toml::parse(text, path_);
    } catch (const toml::parse_error& error) {
      fail(ErrorKind::usage, "{}:{}: {}", path_, error.source().begin.line, error.description());
    }
    for (const auto& [key, node] : table) {
      if (key.str() == "models") {
        read_models(node);
        continue;
      }
      const KnownKey* known = find_known(key.str());
      if (known == nullptr) {
        fail(
            ErrorKind::usage, "{}: unknown key (the keys are the names of the options)",
            where(key.str(), node));
      }
      read_value(*known, node);
    }
    return std::move(config_);
  }

 private:
  std::string where(std::string_view key, const toml::node& node) const {
    return format("{}:{}: {}", path_, node.source().begin.line, key);
  }

  [[noreturn]] void wrong_kind(std::string_view key, const toml::node& node, const char* expected)
      const {
    fail(
        ErrorKind::usage, "{}: expected {}, found {}", where(key, node), expected,
        kind_text(node.type()));
  }

  std::string resolved(const std::string& file) const {
    std::filesystem::path path(file);
    return path.is_absolute() ? file : (folder_ / path).string();
  }

  void read_value(const KnownKey& known, const toml::node& node) {
    std::string text;
    switch (known.kind) {
      case ValueKind::text:
        if (!node.is_string()) wrong_kind(known.name, node, "a string");
        text = **node.as_string();
        break;
      case ValueKind::size:
      case ValueKind::rate:
        if (node.is_integer()) {
          text = std::to_string(**node.as_integer());
        } else if (node.is_string()) {
          text = **node.as_string();
        } else {
          wrong_kind(known.name, node, "a string such as \"22GiB\" or a number of bytes");
        }
        break;
      case ValueKind::count:
        if (!node.is_integer()) wrong_kind(known.name, node, "an integer");
        text = std::to_string(**node.as_integer());
        break;
      case ValueKind::list:
        if (node.is_string()) {
          text = **node.as_string();
        } else if (const toml::array* array = node.as_array()) {
          for (const toml::node& element : *array) {
            if (!element.is_string()) wrong_kind(known.name, element, "a string");
            text += (text.empty() ? "" : ";") + **element.as_string();
          }
        } else {
          wrong_kind(known.name, node, "a string or an array of strings");
        }
        break;
      case ValueKind::flag:
        if (!node.is_boolean()) wrong_kind(known.name, node, "true or false");
        text = **node.as_boolean() ? "true" : "false";
        break;
    }
    if (std::string_view(known.name) == "queue") text = resolved(text);
    config_.values[known.name] = {.text = text, .origin = where(known.name, node)};
  }

  void read_models(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) wrong_kind("models", node, "a table: name = \"FILE\"");
    for (const auto& [key, entry] : *table) {
      std::string label = format("models.{}", key.str());
      NamedModel model;
      if (entry.is_string()) {
        model.file = resolved(**entry.as_string());
      } else if (entry.is_table()) {
        model = read_model(label, *entry.as_table());
      } else {
        wrong_kind(label, entry, "a file name or a table with the key file");
      }
      config_.models[std::string(key.str())] = std::move(model);
    }
  }

  NamedModel read_model(const std::string& label, const toml::table& table) {
    NamedModel model;
    for (const auto& [key, node] : table) {
      std::string name = format("{}.{}", label, key.str());
      if (key.str() == "file") {
        if (!node.is_string()) wrong_kind(name, node, "a string");
        model.file = resolved(**node.as_string());
      } else if (key.str() == "defaults") {
        if (!node.is_table()) wrong_kind(name, node, "a table of body parameters");
        for (const auto& [parameter, value] : *node.as_table()) {
          std::string value_name = format("{}.{}", name, parameter.str());
          Json json = to_json(value_name, value);
          if (auto complaint = default_complaint(std::string(parameter.str()), json)) {
            fail(ErrorKind::usage, "{}: {}", where(value_name, value), *complaint);
          }
          model.defaults.emplace_back(std::string(parameter.str()), std::move(json));
        }
      } else if (key.str() == "draft") {
        fail(
            ErrorKind::usage, "{}: draft models are not in this version (take the key out)",
            where(name, node));
      } else {
        fail(ErrorKind::usage, "{}: unknown key (expected file or defaults)", where(name, node));
      }
    }
    if (model.file.empty()) {
      fail(ErrorKind::usage, "{}: expected the key file", where(label, table));
    }
    return model;
  }

  Json to_json(const std::string& name, const toml::node& node) const {
    if (node.is_string()) return **node.as_string();
    if (node.is_integer()) return **node.as_integer();
    if (node.is_floating_point()) return **node.as_floating_point();
    if (node.is_boolean()) return **node.as_boolean();
    if (const toml::array* array = node.as_array()) {
      Json::Array values;
      for (const toml::node& element : *array)
        values.push_back(to_json(name, element));
      return values;
    }
    if (const toml::table* table = node.as_table()) {
      Json::Object members;
      for (const auto& [key, member] : *table)
        members.emplace_back(std::string(key.str()), to_json(name, member));
      return members;
    }
    wrong_kind(name, node, "a value that JSON has");
  }

  std::string path_;
  std::filesystem::path folder_;
  Config config_;
};

}  // namespace

Config read_config(const std::string& path) {
  return ConfigReader(path).read();
}

std::optional<std::string> default_config_path() {
  std::vector<std::string> places;
  // Read once, before any thread starts.
  if (const char* home = std::getenv("XDG_CONFIG_HOME")) {  // NOLINT(concurrency-mt-unsafe)
    if (*home != '\0') places.push_back(std::string(home) + "/nightsweep/config.toml");
  } else if (const char* user = std::getenv("HOME")) {  // NOLINT(concurrency-mt-unsafe)
    places.push_back(std::string(user) + "/.config/nightsweep/config.toml");
  }
  places.emplace_back("/etc/nightsweep/config.toml");
  for (const std::string& place : places) {
    if (::access(place.c_str(), F_OK) == 0) return place;
  }
  return std::nullopt;
}

}  // namespace nightsweep
