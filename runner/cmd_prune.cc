#include <chrono>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"

namespace nightsweep {

namespace {

constexpr const char* kDefaultAge = "30d";

int prune(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  std::optional<std::string> age = arguments.find("older-than");
  if (age && !arguments.operands().empty()) {
    fail(ErrorKind::usage, "--older-than and names of batches exclude each other");
  }
  double age_s = parse_duration(age.value_or(kDefaultAge), "--older-than");
  auto queue = require_queue(options);
  std::vector<std::string> ids;
  uint64_t n_jobs = 0;
  auto add = [&](const BatchInfo& batch) {
    ids.push_back(batch.id);
    n_jobs += batch.counts.total;
  };
  if (arguments.operands().empty()) {
    int64_t end_ms = unix_ms() - static_cast<int64_t>(age_s * 1000);
    for (const BatchInfo& batch : queue->batches_ended_before(end_ms))
      add(batch);
    queue->prune_sweeps(end_ms);
  }
  for (const std::string& name : arguments.operands())
    add(require_batch(*queue, name));
  queue->prune(ids);
  if (arguments.has("compact")) queue->compact();
  log_info("{} batches with {} requests are deleted", ids.size(), n_jobs);
  return 0;
}

}  // namespace

Command make_prune_command() {
  return {
      .name = "prune",
      .summary = "delete batches and figures of sweeps that ended long ago, or named batches",
      .usage = "[BATCH...] [--older-than TIME] [options]",
      .example = "nightsweep prune --older-than 90d",
      .options = join(
          {{{.name = "older-than", .value = "TIME", .help = "ended before that (default 30d)"},
            {.name = "compact",
             .value = "",
             .help = "give the space back to the file system; others wait meanwhile"}},
           queue_options(),
           general_options()}),
      .min_positionals = 0,
      .max_positionals = SIZE_MAX,
      .run = prune};
}

}  // namespace nightsweep
