// The command line: what a command accepts, what was given, and the options that mean the same
// everywhere (command line before environment before configuration file).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "kernels/device.h"
#include "runner/config.h"

namespace nightsweep {

struct OptionSpec {
  std::string name;   // without dashes
  std::string value;  // "FILE", "N"; empty: a flag
  std::string help;
  char letter = 0;          // "-o"; 0: none
  bool repeatable = false;  // else a second one is an error
  bool may_be_empty = false;
};

// Options and operands in the order of the command line.
class Arguments {
 public:
  // Throws Error(usage). An option may be given as --name=value or --name value; what follows
  // "--" is operands. Values are taken as they stand: commas have no meaning.
  static Arguments parse(
      const std::vector<OptionSpec>& specs,
      const std::vector<std::string>& words);

  bool has(const std::string& name) const;
  std::optional<std::string> find(const std::string& name) const;
  std::vector<std::string> all(const std::string& name) const;
  const std::vector<std::string>& operands() const { return operands_; }
  // The same without one option.
  Arguments without(const std::string& name) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> operands_;
};

enum class ColorChoice { automatic, always, never };

// What only the daemon asks for. Times in seconds.
struct WorkerSettings {
  std::vector<std::string> windows;  // RunWindows::parse
  double model_wait_s = 900;
  std::string metrics_file;  // empty: none
  std::string stop_file;     // empty: QUEUE.stop
  bool yield_battery = true;
  bool yield_gpu = true;
};

struct CommonOptions {
  std::string queue_path;  // empty: not given, and no home to put it
  std::string model;       // file or name of [models]; empty: not given
  std::string device = "auto";
  uint64_t ram_bytes = 0;       // 0: available less a margin
  uint64_t vram_bytes = 0;      // 0: not given
  uint32_t n_threads = 0;       // 0: all
  uint32_t max_sequences = 0;   // 0: what memory allows
  uint32_t context_tokens = 0;  // 0: the model's own
  KvType kv_type = KvType::f16;
  MathMode math = MathMode::fast;
  std::string source = "auto";  // as in StreamOptions
  double link_rate = 0;
  double disk_rate = 0;
  bool verify_numerics = false;
  bool quiet = false;
  bool verbose = false;
  bool json = false;
  ColorChoice color = ColorChoice::automatic;
  ModelTable models;
  WorkerSettings worker;
};

const char* math_mode_name(MathMode mode);

// Rows for a command's table of options. --config, --quiet, --verbose and --color come with every
// command.
std::vector<OptionSpec> general_options();
std::vector<OptionSpec> queue_options();
std::vector<OptionSpec> worker_options();
std::vector<OptionSpec> engine_options();  // --model, --device, budgets, arithmetic
OptionSpec json_option();
std::vector<OptionSpec> join(std::vector<std::vector<OptionSpec>> parts);

// Reads the configuration file and the environment. Throws Error(usage) naming the origin.
CommonOptions read_common_options(const Arguments& arguments);
// Error(usage) where there is none.
const std::string& queue_path_of(const CommonOptions& options);

// "A=B" in two; `option` stands in messages.
std::pair<std::string, std::string> split_pair(const std::string& text, const std::string& option);
// A whole number from `least` to `most`.
uint64_t
parse_count(const std::string& text, const std::string& option, uint64_t least, uint64_t most);
// "1,16,64": several, each in that range.
std::vector<uint32_t>
parse_counts(const std::string& text, const std::string& option, uint32_t least, uint32_t most);

}  // namespace nightsweep
