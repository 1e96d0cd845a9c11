#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"

namespace nightsweep {

namespace {

int cancel(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  std::vector<std::string> names = invocation.arguments.operands();
  auto queue = require_queue(options);
  BatchInfo batch = require_batch(*queue, names.front());
  names.erase(names.begin());
  if (names.empty()) {
    bool was_open = queue->cancel_batch(batch.id);
    batch = require_batch(*queue, batch.id);
    if (!was_open) {
      log_info("{}: it had ended before ({})", batch.id, batch.status);
    } else {
      log_info(
          "{}: {}; {} answers are kept", batch.id,
          batch.counts.running > 0
              ? format(
                    "cancelling, {} requests at work stop at the next step", batch.counts.running)
              : std::string("cancelled"),
          batch.counts.completed);
    }
    return 0;
  }
  for (const std::string& name : names) {
    std::optional<bool> was_open = queue->cancel_job(batch.id, name);
    if (!was_open) fail(ErrorKind::usage, "{}: no job '{}' in it", batch.id, name);
    log_info("{}: {} {}", batch.id, name, *was_open ? "is cancelled" : "had ended before");
  }
  return 0;
}

}  // namespace

Command make_cancel_command() {
  return {
      .name = "cancel",
      .summary = "stop a batch, or single jobs of it; what is answered is kept",
      .usage = "BATCH|last [ID...] [options]",
      .example = "nightsweep cancel last",
      .options = join({queue_options(), general_options()}),
      .min_positionals = 1,
      .max_positionals = SIZE_MAX,
      .run = cancel};
}

}  // namespace nightsweep
