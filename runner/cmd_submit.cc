#include "base/log.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/submission.h"

namespace nightsweep {

namespace {

int submit(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  SubmissionOptions submission = read_submission_options(invocation.arguments);
  read_batch_options(invocation.arguments, submission);
  PromptModels models(options.models, options.context_tokens);
  const PromptModel* model = nullptr;
  if (!options.model.empty()) model = &models.open(require_model(options.models, options.model));
  auto queue = Queue::open(queue_path_of(options));
  Submission made = submit_files(*queue, models, model, submission);
  if (made.existed) {
    log_info("{}: submitted before under this idempotency key; nothing was added", made.batch);
  } else {
    log_info(
        "{} lines queued as {}{}", made.n_lines - made.n_refused, made.batch,
        made.n_refused > 0 ? format(", {} with errors", made.n_refused) : "");
    if (made.twin) {
      log_warning(
          "the same lines and parameters are there as {} ({} of {} done); they are queued once "
          "more (nightsweep cancel {} takes that back, --idempotency-key prevents it)",
          made.twin->id, made.twin->counts.finished(), made.twin->counts.total, made.batch);
    }
  }
  Stdout().write(made.batch + "\n");
  return 0;
}

}  // namespace

Command make_submit_command() {
  return {
      .name = "submit",
      .summary = "check JSONL files and add them to the queue as one batch; prints its id",
      .usage = "FILE... [options]",
      .example = "nightsweep submit prompts.jsonl --model model.gguf",
      .options = join(
          {submission_options(),
           batch_options(),
           queue_options(),
           {{.name = "model", .value = "FILE", .help = "GGUF file or name for every line"},
            {.name = "context", .value = "N", .help = "refuse prompts that do not fit N tokens"}},
           general_options()}),
      .min_positionals = 1,
      .max_positionals = SIZE_MAX,
      .run = submit};
}

}  // namespace nightsweep
