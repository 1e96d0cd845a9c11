// pause, resume and run-now: what the worker is told, kept in the queue until it is taken back.
#include <chrono>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "runner/command.h"
#include "runner/results_writer.h"

namespace nightsweep {

namespace {

int pause(const Invocation& invocation) {
  require_queue(begin_command(invocation.arguments))->set_paused(true);
  log_info("paused: what is at work is saved at the next step (nightsweep resume goes on)");
  return 0;
}

int resume(const Invocation& invocation) {
  require_queue(begin_command(invocation.arguments))->set_paused(false);
  log_info("resumed");
  return 0;
}

int run_now(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  bool is_taken_back = arguments.has("off");
  double for_s = parse_duration(arguments.find("for").value_or("12h"), "--for");
  auto queue = require_queue(options);
  int64_t until_ms = 0;
  if (!is_taken_back) until_ms = unix_ms() + static_cast<int64_t>(for_s * 1000);
  queue->set_run_now_until(until_ms);
  if (is_taken_back) {
    log_info("the worker's windows hold again");
  } else {
    log_info("the worker's windows do not matter for {}", duration_text(for_s));
  }
  return 0;
}

std::vector<OptionSpec> control_options() {
  return join({queue_options(), general_options()});
}

}  // namespace

Command make_pause_command() {
  return {
      .name = "pause",
      .summary = "let the worker save its work, free its memory and wait",
      .usage = "[options]",
      .example = "nightsweep pause",
      .options = control_options(),
      .run = pause};
}

Command make_resume_command() {
  return {
      .name = "resume",
      .summary = "let a paused worker go on",
      .usage = "[options]",
      .example = "nightsweep resume",
      .options = control_options(),
      .run = resume};
}

Command make_run_now_command() {
  return {
      .name = "run-now",
      .summary = "let the worker work outside of its windows",
      .usage = "[--for TIME] [options]",
      .example = "nightsweep run-now --for 2h",
      .options = join(
          {{{.name = "for", .value = "TIME", .help = "so long (default 12h)"},
            {.name = "off", .value = "", .help = "the windows hold again"}},
           control_options()}),
      .run = run_now};
}

}  // namespace nightsweep
