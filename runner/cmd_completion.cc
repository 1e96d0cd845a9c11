#include "engine/rates.h"
#include "runner/command.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

// Words that bash offers behind an option; empty: none.
std::string value_words(const OptionSpec& option) {
  struct Known {
    const char* name;
    const char* words;
  };
  constexpr Known kKnown[] = {
      {"device", "cpu cuda"},
      {"kv", "f32 f16 q8_0"},
      {"math", "exact fast"},
      {"color", "auto always never"},
      {"order", "input finished"},
      {"source", "auto pinned registered direct mmap"},
      {"endpoint", "/v1/chat/completions /v1/completions"},
  };
  for (const Known& known : kKnown) {
    if (option.name == known.name) return known.words;
  }
  if (option.name == "gpu") {
    std::string names = known_gpu_sheets();
    std::erase(names, ',');
    return names;
  }
  return "";
}

std::string bash_script(std::span<const Command> commands) {
  std::string names;
  std::string option_cases;
  std::string value_cases;
  std::vector<std::string> known_values;
  for (const Command& command : commands) {
    names += std::string(names.empty() ? "" : " ") + command.name;
    std::string options;
    for (const OptionSpec& option : command.options) {
      options += (options.empty() ? "--" : " --") + option.name;
      const std::string words = value_words(option);
      std::string line = words.empty() ? ""
                                       : format(
                                             "    --{})\n      COMPREPLY=($(compgen -W \"{}\" -- "
                                             "\"$current\"))\n      return ;;\n",
                                             option.name, words);
      // The same option of several commands stands in the script once.
      if (!line.empty() && value_cases.find(line) == std::string::npos) value_cases += line;
    }
    option_cases += format("    {}) options=\"{}\" ;;\n", command.name, options);
  }
  return "# bash completion for nightsweep: source this, or put it in "
         "/etc/bash_completion.d/nightsweep\n"
         "_nightsweep() {\n"
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  local options=\"\"\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         names +
         " help --help --version\" -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"$previous\" in\n" +
         value_cases +
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         option_cases + "    help) options=\"" + names +
         "\" ;;\n"
         "  esac\n"
         "  if [ \"${current:0:1}\" = - ] || [ \"${COMP_WORDS[1]}\" = help ]; then\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _nightsweep nightsweep\n";
}

int completion(const Invocation& invocation) {
  const std::string& shell = invocation.arguments.operands().front();
  if (shell != "bash") {
    fail(ErrorKind::usage, "completion: expected bash, found '{}'", shell);
  }
  Stdout().write(bash_script(invocation.all));
  return 0;
}

}  // namespace

Command make_completion_command() {
  return {
      .name = "completion",
      .summary = "print a completion script for the shell",
      .usage = "bash",
      .example = "source <(nightsweep completion bash)",
      .options = general_options(),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = completion};
}

}  // namespace nightsweep
