// Files to a batch: every line is checked before any is queued.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jobs/jsonl.h"
#include "queue/queue.h"
#include "runner/model_source.h"
#include "runner/options.h"

namespace nightsweep {

struct SubmissionOptions {
  std::vector<std::string> files;  // "-": stdin
  std::optional<Endpoint> endpoint;
  std::vector<std::pair<std::string, Json>> defaults;          // --set
  std::vector<std::pair<std::string, std::string>> model_map;  // --map-model
  bool lenient = false;
  bool keep_going = false;
  size_t max_line_bytes = 16 << 20;
  std::string name;  // empty: the first file's
  int32_t priority = 0;
  double expires_s = 0;         // after now; 0: never
  std::string idempotency_key;  // empty: none
  // Every model that lines name must be there (run); else names are kept for the worker.
  bool needs_models = false;
  // Names the batch by its content, so that the same submission finds it again.
  bool is_found_again = false;
  std::string key_suffix;  // what else decides the answers: arithmetic, KV type, context
};

// Rows for the table of options of submit and run, and their values.
std::vector<OptionSpec> submission_options();
SubmissionOptions read_submission_options(const Arguments& arguments);

struct Submission {
  std::string batch;
  bool existed = false;             // it was there already, nothing was added
  std::optional<BatchInfo> twin;    // of the same lines and parameters, submitted before
  uint64_t n_lines = 0;             // that were read; a file that is known is not
  uint64_t n_refused = 0;           // with keep_going
  std::vector<std::string> models;  // with needs_models: paths, in order of appearance
};

// Rows for submit alone: --priority, --expires, --idempotency-key.
std::vector<OptionSpec> batch_options();
void read_batch_options(const Arguments& arguments, SubmissionOptions& options);

// Opens each model once.
class PromptModels {
 public:
  PromptModels(const ModelTable& table, uint32_t context_tokens)
      : table_(table), context_tokens_(context_tokens) {}
  // Null when it is neither file nor name. Throws Error(model) for a file that is no model.
  const PromptModel* find(const std::string& file_or_name);
  // By a name of the table alone: what stands in a line never opens a file.
  const PromptModel* find_named(const std::string& name);
  const PromptModel& open(const ModelRef& ref);

 private:
  const ModelTable& table_;
  uint32_t context_tokens_;
  std::map<std::string, std::unique_ptr<PromptModel>> by_path_;
  std::map<std::string, const PromptModel*> by_name_;
};

// `model`: where every line goes; null: where the line says. Messages about lines go to stderr.
// Throws Error(input) when the file is refused; then the queue is as it was.
Submission submit_files(
    Queue& queue,
    PromptModels& models,
    const PromptModel* model,
    const SubmissionOptions& options);

// The same for lines that came by SQL: a bad one gets an error result. Returns how many lines.
uint64_t
submit_inbox(Queue& queue, PromptModels& models, const PromptModel* model, const InboxPart& part);

}  // namespace nightsweep
