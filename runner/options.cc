#include "runner/options.h"

#include <charconv>
#include <cstdlib>
#include <cxxopts.hpp>
#include <filesystem>

#include "base/log.h"
#include "base/units.h"

namespace nightsweep {

namespace {

const OptionSpec& spec_named(const std::vector<OptionSpec>& specs, const std::string& name) {
  for (const OptionSpec& spec : specs) {
    if (spec.name == name) return spec;
  }
  fail(ErrorKind::internal, "no option is named {}", name);
}

// cxxopts quotes names in its own marks; its texts say enough.
std::string plain_quotes(std::string text) {
  for (const char* mark : {"\u2018", "\u2019"}) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, std::string(mark).size(), "'");
    }
  }
  return text;
}

std::string environment_name(const std::string& option) {
  std::string name = "NIGHTSWEEP_";
  for (char c : option)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

const char* environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): before threads
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// One option from whichever of the three sources comes first.
class Settings {
 public:
  Settings(const Arguments& arguments, Config config)
      : arguments_(arguments), config_(std::move(config)) {}

  std::optional<ConfigValue> find(const std::string& name) const {
    if (auto text = arguments_.find(name)) return ConfigValue{*text, "--" + name};
    std::string variable = environment_name(name);
    if (const char* text = environment(variable)) return ConfigValue{text, variable};
    auto found = config_.values.find(name);
    if (found == config_.values.end()) return std::nullopt;
    return found->second;
  }

  std::string text(const std::string& name, std::string otherwise) const {
    auto value = find(name);
    return value ? value->text : std::move(otherwise);
  }
  uint64_t size(const std::string& name) const {
    auto value = find(name);
    return value ? parse_size(value->text, value->origin) : 0;
  }
  double rate(const std::string& name) const {
    auto value = find(name);
    return value ? parse_rate(value->text, value->origin) : 0;
  }
  uint32_t count(const std::string& name, uint64_t most) const {
    auto value = find(name);
    if (!value) return 0;
    return static_cast<uint32_t>(parse_count(value->text, value->origin, 1, most));
  }
  bool flag(const std::string& name) const {
    auto value = find(name);
    if (!value || value->text == "false" || value->text == "0") return false;
    if (value->text == "true" || value->text == "1") return true;
    fail(ErrorKind::usage, "{}: expected true or false, found '{}'", value->origin, value->text);
  }
  bool yes(const std::string& name) const { return choice(name, {"yes", "no"}, 0) == 0; }
  // A repeatable option; elsewhere the parts of one text are parted by ';'.
  std::vector<std::string> list(const std::string& name) const {
    std::vector<std::string> values = arguments_.all(name);
    if (!values.empty()) return values;
    auto value = find(name);
    return value ? std::vector<std::string>{value->text} : std::vector<std::string>{};
  }
  double duration(const std::string& name, double otherwise) const {
    auto value = find(name);
    return value ? parse_duration(value->text, value->origin) : otherwise;
  }
  // Index of the value in `names`.
  size_t choice(const std::string& name, const std::vector<std::string>& names, size_t otherwise)
      const {
    auto value = find(name);
    if (!value) return otherwise;
    std::string expected;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == value->text) return i;
      expected += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    }
    fail(ErrorKind::usage, "{}: expected {}, found '{}'", value->origin, expected, value->text);
  }

  ModelTable take_models() { return std::move(config_.models); }

 private:
  const Arguments& arguments_;
  Config config_;
};

std::string default_queue_path() {
  if (const char* state = environment("XDG_STATE_HOME")) {
    return std::string(state) + "/nightsweep/queue.db";
  }
  if (const char* home = environment("HOME")) {
    return std::string(home) + "/.local/state/nightsweep/queue.db";
  }
  return "";
}

void check_device_name(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return;
  if (device.starts_with("cuda:") && device.size() > 5 &&
      device.find_first_not_of("0123456789", 5) == std::string::npos) {
    return;
  }
  fail(ErrorKind::usage, "--device: expected auto, cpu, cuda or cuda:N, found '{}'", device);
}

}  // namespace

Arguments Arguments::parse(
    const std::vector<OptionSpec>& specs,
    const std::vector<std::string>& words) {
  cxxopts::Options parser("nightsweep");
  auto add = parser.add_options();
  for (const OptionSpec& spec : specs) {
    std::string names =
        spec.letter != 0 ? std::string(1, spec.letter) + "," + spec.name : spec.name;
    if (spec.value.empty()) {
      add(names, spec.help);
    } else {
      add(names, spec.help, cxxopts::value<std::string>());
    }
  }
  std::vector<const char*> argv = {"nightsweep"};
  for (const std::string& word : words)
    argv.push_back(word.c_str());

  Arguments arguments;
  try {
    cxxopts::ParseResult result = parser.parse(static_cast<int>(argv.size()), argv.data());
    // arguments() has every value as it was written and in order; typed vector values of cxxopts
    // would be cut at commas.
    for (const cxxopts::KeyValue& pair : result.arguments()) {
      const OptionSpec& spec = spec_named(specs, pair.key());
      if (arguments.has(spec.name) && !spec.repeatable && !spec.value.empty()) {
        fail(ErrorKind::usage, "--{} is given twice", spec.name);
      }
      if (!spec.value.empty() && pair.value().empty() && !spec.may_be_empty) {
        fail(
            ErrorKind::usage, "--{}: expected {}, found an empty text (an unset variable?)",
            spec.name, spec.value);
      }
      arguments.given_.emplace_back(pair.key(), pair.value());
    }
    arguments.operands_ = result.unmatched();
  } catch (const cxxopts::exceptions::exception& error) {
    fail(ErrorKind::usage, "{}", plain_quotes(error.what()));
  }
  return arguments;
}

bool Arguments::has(const std::string& name) const {
  return find(name).has_value();
}

std::optional<std::string> Arguments::find(const std::string& name) const {
  for (const auto& [key, value] : given_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::vector<std::string> Arguments::all(const std::string& name) const {
  std::vector<std::string> values;
  for (const auto& [key, value] : given_) {
    if (key == name) values.push_back(value);
  }
  return values;
}

Arguments Arguments::without(const std::string& name) const {
  Arguments others = *this;
  std::erase_if(others.given_, [&](const auto& pair) { return pair.first == name; });
  return others;
}

const char* math_mode_name(MathMode mode) {
  return mode == MathMode::exact ? "exact" : "fast";
}

std::vector<OptionSpec> general_options() {
  return {
      {.name = "config", .value = "FILE", .help = "TOML with the same names as the options"},
      {.name = "quiet", .value = "", .help = "only warnings and errors", .letter = 'q'},
      {.name = "verbose", .value = "", .help = "say more", .letter = 'v'},
      {.name = "color", .value = "WHEN", .help = "auto, always or never"},
      {.name = "help", .value = "", .help = "this text", .letter = 'h'},
  };
}

std::vector<OptionSpec> queue_options() {
  return {
      {.name = "queue",
       .value = "PATH",
       .help =
           "the queue's file (else $NIGHTSWEEP_QUEUE, else ~/.local/state/nightsweep/queue.db)"}};
}

std::vector<OptionSpec> engine_options() {
  return {
      {.name = "model", .value = "FILE", .help = "GGUF file, or a name from [models]"},
      {.name = "device",
       .value = "NAME",
       .help = "auto, cpu, cuda or cuda:N (default auto: the first GPU)"},
      {.name = "ram", .value = "SIZE", .help = "memory for weights, KV and staging together"},
      {.name = "vram",
       .value = "SIZE",
       .help = "memory of the GPU for weights, KV and scratch together"},
      {.name = "threads", .value = "N", .help = "CPU threads (default: all)"},
      {.name = "batch", .value = "N", .help = "most sequences in one sweep"},
      {.name = "context", .value = "N", .help = "most tokens of a sequence"},
      {.name = "kv", .value = "TYPE", .help = "f32, f16 or q8_0 (default f16)"},
      {.name = "math", .value = "MODE", .help = "exact or fast (default fast)"},
      {.name = "verify-numerics",
       .value = "",
       .help = "look for NaN after every layer; such a line ends in an error that names it"},
      {.name = "source",
       .value = "NAME",
       .help = "of weights that stream: auto, pinned, registered, direct or mmap (default auto)"},
      {.name = "link-rate", .value = "RATE", .help = "throttle the link to the GPU: 6.5GB/s"},
      {.name = "disk-rate", .value = "RATE", .help = "throttle the disk: 500MB/s"},
  };
}

std::vector<OptionSpec> worker_options() {
  return {
      {.name = "window",
       .value = "WINDOW",
       .help = "work only then: \"22:00-07:00\", \"Mon-Fri 22:00-06:30 Europe/Vienna\"",
       .repeatable = true},
      {.name = "model-wait",
       .value = "TIME",
       .help = "longest wait of jobs for another model (default 15min)"},
      {.name = "metrics-file", .value = "FILE", .help = "figures for Prometheus, every 15 s"},
      {.name = "stop-file", .value = "FILE", .help = "wait while it is there (default QUEUE.stop)"},
      {.name = "yield-battery", .value = "yes|no", .help = "wait on battery power (default yes)"},
      {.name = "yield-gpu",
       .value = "yes|no",
       .help = "wait while others use the GPU (default yes)"},
  };
}

OptionSpec json_option() {
  return {.name = "json", .value = "", .help = "one JSON object in place of text"};
}

std::vector<OptionSpec> join(std::vector<std::vector<OptionSpec>> parts) {
  std::vector<OptionSpec> all;
  for (auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

CommonOptions read_common_options(const Arguments& arguments) {
  std::optional<std::string> config_path = arguments.find("config");
  if (!config_path) {
    if (const char* named = environment("NIGHTSWEEP_CONFIG")) config_path = named;
  }
  if (!config_path) config_path = default_config_path();
  Settings settings(arguments, config_path ? read_config(*config_path) : Config{});

  constexpr uint64_t kMostThreads = 4096;
  constexpr uint64_t kMostSequences = 65536;
  constexpr uint64_t kMostContext = 1ULL << 31;
  CommonOptions options;
  auto queue = settings.find("queue");
  options.queue_path = queue ? queue->text : default_queue_path();
  options.model = settings.text("model", "");
  options.device = settings.text("device", "auto");
  check_device_name(options.device);
  options.ram_bytes = settings.size("ram");
  options.vram_bytes = settings.size("vram");
  options.n_threads = settings.count("threads", kMostThreads);
  options.max_sequences = settings.count("batch", kMostSequences);
  options.context_tokens = settings.count("context", kMostContext);
  constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::q8_0};
  options.kv_type = kKvTypes[settings.choice("kv", {"f32", "f16", "q8_0"}, 1)];
  constexpr MathMode kModes[] = {MathMode::exact, MathMode::fast};
  options.math = kModes[settings.choice("math", {"exact", "fast"}, 1)];
  constexpr const char* kSources[] = {"auto", "pinned", "registered", "direct", "mmap"};
  options.source =
      kSources[settings.choice("source", {std::begin(kSources), std::end(kSources)}, 0)];
  options.link_rate = settings.rate("link-rate");
  options.disk_rate = settings.rate("disk-rate");
  options.verify_numerics = settings.flag("verify-numerics");
  options.quiet = settings.flag("quiet");
  options.verbose = settings.flag("verbose");
  options.json = settings.flag("json");
  constexpr ColorChoice kColors[] = {
      ColorChoice::automatic, ColorChoice::always, ColorChoice::never};
  options.color = kColors[settings.choice("color", {"auto", "always", "never"}, 0)];
  if (options.quiet && options.verbose) {
    fail(ErrorKind::usage, "--quiet and --verbose exclude each other");
  }
  options.worker.windows = settings.list("window");
  options.worker.model_wait_s = settings.duration("model-wait", options.worker.model_wait_s);
  options.worker.metrics_file = settings.text("metrics-file", "");
  options.worker.stop_file = settings.text("stop-file", "");
  options.worker.yield_battery = settings.yes("yield-battery");
  options.worker.yield_gpu = settings.yes("yield-gpu");
  options.models = settings.take_models();
  return options;
}

const std::string& queue_path_of(const CommonOptions& options) {
  if (options.queue_path.empty()) {
    fail(
        ErrorKind::usage,
        "no place for the queue: neither XDG_STATE_HOME nor HOME is set (give --queue PATH)");
  }
  return options.queue_path;
}

std::pair<std::string, std::string> split_pair(const std::string& text, const std::string& option) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0) {
    fail(ErrorKind::usage, "{}: expected NAME=VALUE, found '{}'", option, text);
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

uint64_t
parse_count(const std::string& text, const std::string& option, uint64_t least, uint64_t most) {
  uint64_t number = 0;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last || number < least || number > most) {
    fail(
        ErrorKind::usage, "{}: expected a whole number from {} to {}, found '{}'", option, least,
        most, text);
  }
  return number;
}

std::vector<uint32_t>
parse_counts(const std::string& text, const std::string& option, uint32_t least, uint32_t most) {
  std::vector<uint32_t> counts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    counts.push_back(
        static_cast<uint32_t>(parse_count(text.substr(at, end - at), option, least, most)));
    at = end + 1;
  }
  return counts;
}

}  // namespace nightsweep
