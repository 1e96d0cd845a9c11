// The configuration file: TOML with the names of the options, and a table [models].
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace nightsweep {

// A model that has a name: its file, and body parameters for lines that do not set them.
struct NamedModel {
  std::string file;  // absolute, or relative to the working directory when the table's was
  std::vector<std::pair<std::string, Json>> defaults;
};
using ModelTable = std::map<std::string, NamedModel>;

// A value of the file in the form of a command line, and where it stands.
struct ConfigValue {
  std::string text;    // a true flag: "true"
  std::string origin;  // "FILE:3: ram"
};

struct Config {
  std::map<std::string, ConfigValue> values;
  ModelTable models;
};

// Throws Error(usage) with file and line: not TOML, an unknown key, a value of another kind.
// Relative files in it are relative to its folder.
Config read_config(const std::string& path);

// The file that holds when --config is not given; nullopt when there is none.
std::optional<std::string> default_config_path();

}  // namespace nightsweep
