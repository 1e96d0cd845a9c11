#include <sys/stat.h>

#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"
#include "runner/stop_signal.h"

namespace nightsweep {

namespace {

constexpr double kFollowEvery = 0.5;

// Until the batch has ended or a signal says stop.
BatchInfo wait_for_end(Queue& queue, BatchInfo batch) {
  while (!is_ended(batch) && !StopSignal::instance().wait_s(kFollowEvery))
    batch = require_batch(queue, batch.id);
  return batch;
}

BatchInfo follow(Queue& queue, BatchInfo batch, ResultsWriter& writer, DataSink& sink) {
  for (;;) {
    bool was_ended = is_ended(batch);
    writer.write_new(sink);
    if (was_ended || StopSignal::instance().wait_s(kFollowEvery)) return batch;
    batch = require_batch(queue, batch.id);
  }
}

int results(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  ResultOrder order = read_result_order(arguments);
  std::string output = arguments.find("output").value_or("");
  bool follows = arguments.has("follow");
  bool to_file = !output.empty() && output != "-";
  if (follows && !to_file) {
    if (arguments.find("order").value_or("finished") == "input") {
      fail(
          ErrorKind::usage,
          "--follow writes answers as they come: --order input needs -o FILE (written at the end)");
    }
    order = ResultOrder::finished;
  }
  refuse_same_file(output, queue_path_of(options), "the queue");
  auto queue = require_queue(options);
  BatchInfo batch = require_batch(*queue, arguments.operands().front());
  ResultsWriter writer(*queue, batch.id, order, arguments.has("stable"));
  struct stat found {};
  if (to_file && !arguments.has("force") && ::stat(output.c_str(), &found) == 0 &&
      S_ISREG(found.st_mode) && found.st_size > 0) {
    fail(ErrorKind::usage, "-o {}: the file is there already (--force writes over it)", output);
  }
  check_output(output);
  if (follows) StopSignal::instance().install();
  if (follows && to_file) batch = wait_for_end(*queue, batch);
  std::unique_ptr<DataSink> sink = open_output(output);
  if (follows && !to_file) {
    batch = follow(*queue, batch, writer, *sink);
  } else {
    writer.write_new(*sink);
  }
  sink->commit();
  return batch_exit_code(batch);
}

}  // namespace

Command make_results_command() {
  return {
      .name = "results",
      .summary = "write the answers of a batch so far; --follow goes on until it ends",
      .usage = "BATCH|last [-o OUT] [options]",
      .example = "nightsweep results last -o answers.jsonl",
      .options = join(
          {result_options(),
           {{.name = "follow", .value = "", .help = "go on until the batch ends"},
            {.name = "force", .value = "", .help = "write over a file that is there"}},
           queue_options(),
           general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = results};
}

}  // namespace nightsweep
