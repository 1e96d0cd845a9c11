#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"

namespace nightsweep {

namespace {

int retry(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  std::vector<std::string> names = invocation.arguments.operands();
  auto queue = require_queue(options);
  BatchInfo batch = require_batch(*queue, names.front());
  names.erase(names.begin());
  uint64_t n = queue->retry(batch.id, names);
  log_info("{}: {} requests wait again", batch.id, n);
  return 0;
}

}  // namespace

Command make_retry_command() {
  return {
      .name = "retry",
      .summary = "put the failed, expired and cancelled jobs of a batch back, or single ones",
      .usage = "BATCH|last [ID...] [options]",
      .example = "nightsweep retry last",
      .options = join({queue_options(), general_options()}),
      .min_positionals = 1,
      .max_positionals = SIZE_MAX,
      .run = retry};
}

}  // namespace nightsweep
