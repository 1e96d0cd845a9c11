#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"

namespace nightsweep {

namespace {

int backup(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  const std::string& path = invocation.arguments.operands().front();
  require_queue(options)->backup(path);
  log_info("{}: a copy of the queue", path);
  return 0;
}

}  // namespace

Command make_backup_command() {
  return {
      .name = "backup",
      .summary = "copy the queue to a file, also while a worker runs",
      .usage = "FILE [options]",
      .example = "nightsweep backup queue-$(date +%F).db",
      .options = join({queue_options(), general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = backup};
}

}  // namespace nightsweep
