// A command of the program: one file cmd_NAME.cc each, one row in main.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runner/options.h"

namespace nightsweep {

struct Command;

// A command line, parsed.
struct Invocation {
  const Command& command;
  std::span<const Command> all;  // for completion and help
  Arguments arguments;
};

struct Command {
  const char* name = nullptr;
  const char* summary = nullptr;  // one line
  const char* usage = nullptr;    // what follows the name: "FILE -o OUT [options]"
  const char* example = nullptr;  // a line to copy
  std::vector<OptionSpec> options;
  size_t min_positionals = 0;
  size_t max_positionals = 0;
  // Returns the exit code; throws Error.
  int (*run)(const Invocation& invocation) = nullptr;
};

// What every command does first: reads the options that mean the same everywhere, and sets up the
// messages as they say. Throws Error(usage).
CommonOptions begin_command(const Arguments& arguments);

// Text of `nightsweep COMMAND --help`.
std::string command_help(const Command& command);
// Text of `nightsweep --help`.
std::string program_help(std::span<const Command> commands);
// Which of the names is meant by a mistyped one; empty when none is near.
std::string nearest_name(const std::string& typed, const std::vector<std::string>& names);

Command make_run_command();
Command make_submit_command();
Command make_worker_command();
Command make_status_command();
Command make_results_command();
Command make_cancel_command();
Command make_retry_command();
Command make_prune_command();
Command make_pause_command();
Command make_resume_command();
Command make_run_now_command();
Command make_backup_command();
Command make_doctor_command();
Command make_inspect_command();
Command make_tokenize_command();
Command make_render_command();
Command make_logits_command();
Command make_perplexity_command();
Command make_plan_command();
Command make_bench_command();
Command make_completion_command();

}  // namespace nightsweep
