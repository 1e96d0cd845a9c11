#include "runner/command.h"

#include <unistd.h>

#include <algorithm>

#include "base/format.h"
#include "base/log.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

std::string option_line(const OptionSpec& option) {
  std::string left = "  ";
  left += option.letter != 0 ? format("-{}, ", option.letter) : "    ";
  left += "--" + option.name;
  if (!option.value.empty()) left += " " + option.value;
  std::string line = format("{:<30} {}", left, option.help);
  if (option.repeatable) line += " (may be given again)";
  return line + "\n";
}

// Edits of one letter, two neighbours in the wrong order counted once.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

CommonOptions begin_command(const Arguments& arguments) {
  CommonOptions options = read_common_options(arguments);
  LogLevel least = options.quiet     ? LogLevel::warning
                   : options.verbose ? LogLevel::debug
                                     : LogLevel::info;
  set_up_log(least, color_wanted(options.color, STDERR_FILENO));
  return options;
}

std::string command_help(const Command& command) {
  std::string text =
      format("nightsweep {} {}\n\n{}\n\nOptions:\n", command.name, command.usage, command.summary);
  for (const OptionSpec& option : command.options)
    text += option_line(option);
  text += format("\nExample:\n  {}\n", command.example);
  return text;
}

std::string program_help(std::span<const Command> commands) {
  std::string text =
      "nightsweep: answers files of prompts with a language model that is larger than memory\n\n"
      "Usage: nightsweep COMMAND [options]\n\nCommands:\n";
  for (const Command& command : commands)
    text += format("  {:<12} {}\n", command.name, command.summary);
  text +=
      "  help         this text, or that of a command\n\n"
      "`nightsweep COMMAND --help` lists the options of a command; `nightsweep --version` tells "
      "the "
      "version.\n\n"
      "Exit codes: 0 done; 1 done, some lines ended in errors; 2 wrong command line; 3 input file "
      "refused;\n4 model missing or not supported; 5 device missing or too small; 6 queue cannot "
      "be "
      "used;\n7 storage fails; 75 stopped with work left.\n\n"
      "Example:\n"
      "  nightsweep run prompts.jsonl --model model.gguf -o answers.jsonl\n";
  return text;
}

std::string nearest_name(const std::string& typed, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = 3;
  for (const std::string& name : names) {
    size_t distance = edit_distance(typed, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace nightsweep
