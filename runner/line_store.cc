#include "runner/line_store.h"

#include <utility>

namespace nightsweep {

namespace {

// A transaction of the queue each: long enough to be worth its syncs, short enough to wait for.
constexpr size_t kSliceBytes = size_t{16} << 20;
constexpr size_t kSliceLines = 32'768;

}  // namespace

LineStore::LineStore(std::unique_ptr<BatchWriter> writer, Report report)
    : writer_(std::move(writer)), report_(std::move(report)) {}

void LineStore::add(NewLine line) {
  filling_.bytes += line.bytes();
  filling_.lines.push_back(std::move(line));
  pass_on_if_full();
}

void LineStore::refuse(LineError error) {
  filling_.bytes += sizeof error + error.custom_id.size() + error.message.size();
  filling_.errors.push_back(std::move(error));
  pass_on_if_full();
}

void LineStore::pass_on_if_full() {
  const size_t n = filling_.lines.size() + filling_.errors.size();
  if (n >= kSliceLines || filling_.bytes >= kSliceBytes) pass_on();
}

void LineStore::finish() {
  pass_on();
  settle();
}

void LineStore::pass_on() {
  settle();
  in_store_ = std::exchange(filling_, {});
  storing_ =
      std::async(std::launch::async, [this] { return writer_->add(std::move(in_store_.lines)); });
}

// Waits for the slice at hand and reports it.
void LineStore::settle() {
  if (!storing_.valid()) return;
  std::vector<BatchWriter::Repeated> repeated = storing_.get();
  report_(std::move(in_store_.errors), std::move(repeated));
}

}  // namespace nightsweep
