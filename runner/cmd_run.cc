#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/results_writer.h"
#include "runner/serve.h"
#include "runner/stop_signal.h"
#include "runner/submission.h"
#include "runner/workload.h"

namespace nightsweep {

namespace {

// What decides the bits of an answer besides the file, its parameters and the model. Threads,
// memory and batch size do not.
std::string arithmetic_key(const CommonOptions& options) {
  return format(
      "math={} kv={} context={} device={}", math_mode_name(options.math),
      kv_type_name(options.kv_type), options.context_tokens, device_name(options));
}

// Models one after the other; true: stopped by a signal.
bool work_through(
    Queue& queue,
    PromptModels& models,
    const Submission& submission,
    const CommonOptions& options) {
  for (const std::string& name : submission.models) {
    const PromptModel* model = models.find(name);
    if (model == nullptr) fail(ErrorKind::model, "{}: the model has gone", name);
    ModelServer server(*model, options, most_kv_pages(queue, submission.batch, name, *model));
    ServeOptions serve;
    serve.batch = submission.batch;
    serve.quiet = options.quiet;
    serve.claim = [&](ClaimRequest request) {
      request.batch = submission.batch;
      request.models = {name};
      return queue.claim(request);
    };
    Worker::End end = server.serve(queue, serve);
    log_info("{}", server.report());
    if (end == Worker::End::stopped) return true;
  }
  return false;
}

int run(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  SubmissionOptions submission_options = read_submission_options(invocation.arguments);
  ResultOrder order = read_result_order(invocation.arguments);
  std::string output = invocation.arguments.find("output").value_or("");
  refuse_same_file(output, submission_options.files.front());
  submission_options.needs_models = true;
  submission_options.is_found_again = true;
  submission_options.key_suffix = arithmetic_key(options);

  PromptModels models(options.models, options.context_tokens);
  const PromptModel* model = nullptr;
  if (!options.model.empty()) {
    model = &models.open(chosen_model(options));
    for (const std::string& file : model->gguf()->paths())
      refuse_same_file(output, file, "the model");
  } else if (options.models.empty() && submission_options.model_map.empty()) {
    fail(ErrorKind::usage, "expected --model FILE (a GGUF file), or [models] in a configuration");
  }
  refuse_same_file(output, queue_path_of(options), "the queue");
  check_output(output);
  auto queue = Queue::open(queue_path_of(options));
  queue->become_worker(worker_info(options, model != nullptr ? model->ref().path : ""));
  StopSignal::instance().install();

  Submission submission = submit_files(*queue, models, model, submission_options);
  BatchInfo batch = require_batch(*queue, submission.batch);
  if (submission.existed) {
    log_info(
        "{}: found again, {} of {} are done", batch.id, batch.counts.finished(),
        batch.counts.total);
  } else {
    log_info("{}: {} requests", batch.id, batch.counts.total);
  }
  if (!is_ended(batch) && work_through(*queue, models, submission, options)) {
    log_warning("stopped; the same command goes on where this one ended");
    return static_cast<int>(ErrorKind::interrupted);
  }
  batch = require_batch(*queue, submission.batch);
  if (!is_ended(batch)) {
    log_warning(
        "{}: {} of {} requests are still open", batch.id,
        batch.counts.total - batch.counts.finished(), batch.counts.total);
    return static_cast<int>(ErrorKind::interrupted);
  }
  std::unique_ptr<DataSink> sink = open_output(output);
  ResultsWriter(*queue, batch.id, order, invocation.arguments.has("stable")).write_new(*sink);
  sink->commit();
  log_info(
      "{} answered, {} failed{}", batch.counts.completed, batch.counts.failed,
      output.empty() ? "" : ": " + output);
  if (batch.counts.failed > 0) {
    log_info("`nightsweep retry {}` and the same command try those that failed again", batch.id);
  }
  return batch_exit_code(batch);
}

}  // namespace

Command make_run_command() {
  return {
      .name = "run",
      .summary = "answer a JSONL file: submit, work, write; the same line again resumes",
      .usage = "FILE -o OUT --model MODEL [options]",
      .example = "nightsweep run prompts.jsonl --model model.gguf -o answers.jsonl",
      .options = join(
          {result_options(), submission_options(), engine_options(), queue_options(),
           general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = run};
}

}  // namespace nightsweep
