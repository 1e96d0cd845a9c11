// The table of commands, and the one place where an Error becomes an exit code.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>

#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

const char* const kVersion = NIGHTSWEEP_VERSION;

std::vector<Command> all_commands() {
  return {
      make_run_command(),    make_submit_command(),  make_worker_command(),
      make_status_command(), make_results_command(), make_cancel_command(),
      make_retry_command(),  make_prune_command(),   make_pause_command(),
      make_resume_command(), make_run_now_command(), make_backup_command(),
      make_doctor_command(), make_inspect_command(), make_tokenize_command(),
      make_render_command(), make_logits_command(),  make_perplexity_command(),
      make_plan_command(),   make_bench_command(),   make_completion_command(),
  };
}

const Command* find_command(std::span<const Command> commands, const std::string& name) {
  for (const Command& command : commands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

const Command& require_command(std::span<const Command> commands, const std::string& name) {
  if (const Command* found = find_command(commands, name)) return *found;
  std::vector<std::string> names;
  for (const Command& command : commands)
    names.emplace_back(command.name);
  std::string near = nearest_name(name, names);
  fail(
      ErrorKind::usage, "unknown command '{}'{} (nightsweep --help lists them)", name,
      near.empty() ? "" : ": did you mean " + near + "?");
}

int run_words(std::span<const Command> commands, std::vector<std::string> words) {
  if (words.empty()) {
    write_message(program_help(commands));
    return static_cast<int>(ErrorKind::usage);
  }
  std::string name = words.front();
  words.erase(words.begin());
  if (name == "--version") {
    Stdout().write(format("nightsweep {}\n", kVersion));
    return 0;
  }
  if (name == "--help" || name == "-h" || (name == "help" && words.empty())) {
    Stdout().write(program_help(commands));
    return 0;
  }
  if (name == "help") {
    Stdout().write(command_help(require_command(commands, words.front())));
    return 0;
  }
  const Command& command = require_command(commands, name);
  // Help is given whatever else is on the line.
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--help" || word == "-h") {
      Stdout().write(command_help(command));
      return 0;
    }
  }
  Invocation invocation{
      .command = command, .all = commands, .arguments = Arguments::parse(command.options, words)};
  size_t n = invocation.arguments.operands().size();
  if (n < command.min_positionals || n > command.max_positionals) {
    std::string extra =
        n > command.max_positionals
            ? format(
                  ", found '{}' too much", invocation.arguments.operands()[command.max_positionals])
            : "";
    fail(
        ErrorKind::usage, "expected: nightsweep {} {}{} (--help tells more)", command.name,
        command.usage, extra);
  }
  return command.run(invocation);
}

int exit_code_of(int argc, char** argv) {
  // A reader that has gone away shows as EPIPE where we write, not as a signal.
  (void)std::signal(SIGPIPE, SIG_IGN);
  set_up_log(LogLevel::info, color_wanted(ColorChoice::automatic, STDERR_FILENO));
  try {
    std::vector<Command> commands = all_commands();
    return run_words(commands, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const Error& error) {
    log_error("{}", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    log_error("out of memory (give --ram a smaller budget)");
    return static_cast<int>(ErrorKind::device);
  } catch (const std::exception& error) {
    log_error("internal fault: {}", error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}

}  // namespace

}  // namespace nightsweep

int main(int argc, char** argv) {
  return nightsweep::exit_code_of(argc, argv);
}
