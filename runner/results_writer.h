// Results of a batch as JSON lines, read in pages, so that memory does not grow with the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "queue/queue.h"
#include "runner/options.h"
#include "runner/output.h"

namespace nightsweep {

enum class ResultOrder { input, finished };

// Rows --order and --stable, and the value of --order.
std::vector<OptionSpec> result_options();
ResultOrder read_result_order(const Arguments& arguments);

class ResultsWriter {
 public:
  ResultsWriter(Queue& queue, std::string batch, ResultOrder order, bool stable);
  // Writes what came since the last call. In input order that is right only once, or when nothing
  // is added behind what was written.
  void write_new(DataSink& sink);

 private:
  Queue& queue_;
  std::string batch_;
  ResultOrder order_;
  bool stable_;
  uint64_t after_ = 0;
};

// The exit code that tells how a batch stands: 0, 1 or 75.
int batch_exit_code(const BatchInfo& batch);
// Nothing more will come.
bool is_ended(const BatchInfo& batch);
// The queue, or Error(usage) where there is none yet: looking at one does not make it.
std::unique_ptr<Queue> require_queue(const CommonOptions& options);
// Error(usage) for an unknown batch.
BatchInfo require_batch(Queue& queue, const std::string& id_or_prefix);

}  // namespace nightsweep
