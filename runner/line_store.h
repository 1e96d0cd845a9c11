// Lines on their way from a reader to a BatchWriter: they are stored in slices, on a thread of
// their own, while the caller reads and checks those behind. No more than two slices are in memory.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "jobs/jsonl.h"
#include "queue/queue.h"

namespace nightsweep {

class LineStore {
 public:
  // What a slice brought to light, both by rising line: errors that were handed in, and lines whose
  // id was taken. Called on the caller's thread, within add(), refuse() and finish().
  using Report = std::function<void(std::vector<LineError>, std::vector<BatchWriter::Repeated>)>;

  LineStore(std::unique_ptr<BatchWriter> writer, Report report);

  // Lines and errors come by rising line; a line may have both. What storing throws comes out of
  // one of these calls.
  void add(NewLine line);
  void refuse(LineError error);
  // The rest; all is stored and reported afterwards.
  void finish();

  // REQUIRES: called in a report or after finish(): else the other thread may be using it.
  BatchWriter& writer() { return *writer_; }

 private:
  struct Slice {
    std::vector<NewLine> lines;
    std::vector<LineError> errors;
    size_t bytes = 0;
  };

  void pass_on_if_full();
  void pass_on();
  void settle();

  std::unique_ptr<BatchWriter> writer_;
  Report report_;
  Slice filling_;
  Slice in_store_;
  // Last: its end waits for the thread that uses the others.
  std::future<std::vector<BatchWriter::Repeated>> storing_;
};

}  // namespace nightsweep
