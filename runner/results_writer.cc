#include "runner/results_writer.h"

#include <utility>

#include "jobs/jsonl.h"

namespace nightsweep {

std::vector<OptionSpec> result_options() {
  return {
      {.name = "output",
       .value = "FILE",
       .help = "write there, at once (default: stdout)",
       .letter = 'o'},
      {.name = "order", .value = "ORDER", .help = "input (default) or finished: as they came"},
      {.name = "stable", .value = "", .help = "leave out ids, times and cost, to compare runs"},
  };
}

ResultOrder read_result_order(const Arguments& arguments) {
  std::string order = arguments.find("order").value_or("input");
  if (order == "input") return ResultOrder::input;
  if (order == "finished") return ResultOrder::finished;
  fail(ErrorKind::usage, "--order: expected input or finished, found '{}'", order);
}

ResultsWriter::ResultsWriter(Queue& queue, std::string batch, ResultOrder order, bool stable)
    : queue_(queue), batch_(std::move(batch)), order_(order), stable_(stable) {}

void ResultsWriter::write_new(DataSink& sink) {
  constexpr uint32_t kPage = 256;
  for (;;) {
    std::vector<StoredResult> page = order_ == ResultOrder::input
                                         ? queue_.results_by_line(batch_, after_, kPage)
                                         : queue_.results_by_finish(batch_, after_, kPage);
    std::string text;
    for (StoredResult& stored : page) {
      after_ = order_ == ResultOrder::input ? stored.line : stored.sequence;
      ResultLine line;
      line.id = format("batch_req_{}", stored.job);
      line.custom_id = std::move(stored.custom_id);
      line.request_id = format("req_{}", stored.job);
      line.status_code = stored.result.status_code;
      line.body = std::move(stored.result.body);
      line.nightsweep = std::move(stored.result.nightsweep);
      if (!stored.result.error_code.empty()) {
        line.lost = LostError{
            .code = std::move(stored.result.error_code),
            .message = std::move(stored.result.error_message)};
        line.body.clear();
      }
      text += result_line(line, stable_);
    }
    if (!text.empty()) sink.write(text);
    if (page.size() < kPage) return;
  }
}

bool is_ended(const BatchInfo& batch) {
  return batch.counts.finished() >= batch.counts.total;
}

int batch_exit_code(const BatchInfo& batch) {
  if (!is_ended(batch)) return static_cast<int>(ErrorKind::interrupted);
  return batch.counts.failed > 0 ? 1 : 0;
}

std::unique_ptr<Queue> require_queue(const CommonOptions& options) {
  auto queue = Queue::open_existing(queue_path_of(options));
  if (queue == nullptr) {
    fail(
        ErrorKind::usage, "{}: there is no queue yet (nightsweep submit makes one)",
        queue_path_of(options));
  }
  return queue;
}

BatchInfo require_batch(Queue& queue, const std::string& id_or_prefix) {
  auto id = queue.find_batch(id_or_prefix);
  auto batch = id ? queue.batch(*id) : std::nullopt;
  if (!batch) {
    fail(
        ErrorKind::usage, "{}: no batch of that id in {} (nightsweep status lists them)",
        id_or_prefix, queue.path());
  }
  return *batch;
}

}  // namespace nightsweep
