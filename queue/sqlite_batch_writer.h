// Lines of a batch on their way into the queue. A few wait in memory and go in with the batch, in
// one transaction. Of many, each call is a short transaction of its own, under a batch that is
// hidden (hidden_batches.h) and that the last one turns into an open one: rows are written once,
// memory does not grow with their number, and others wait for one call at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "queue/connection.h"
#include "queue/queue.h"
#include "queue/submit_lock.h"

namespace nightsweep {

class SqliteBatchWriter final : public BatchWriter {
 public:
  SqliteBatchWriter(const std::string& path, const QueueOptions& options);
  ~SqliteBatchWriter() override;
  SqliteBatchWriter(const SqliteBatchWriter&) = delete;
  SqliteBatchWriter& operator=(const SqliteBatchWriter&) = delete;

  std::vector<Repeated> add(std::vector<NewLine> lines) override;
  std::string commit(const NewBatch& batch, bool* existed) override;

 private:
  struct Taken {
    size_t index;  // of the line that is not added
    uint64_t first_line;
  };

  std::vector<Repeated> hold(std::vector<NewLine> lines);
  void begin();
  std::vector<Taken> store(const std::vector<NewLine>& lines);
  void let_others_write() const;

  std::vector<Taken> insert_lines(int64_t batch, const std::vector<NewLine>& lines);
  int64_t model_row(const std::string& name);
  std::string find_known(const NewBatch& batch);
  int64_t insert_batch();
  void open_batch(int64_t id, const NewBatch& batch);
  [[noreturn]] void fail_taken_away() const;
  void discard() noexcept;

  QueueOptions options_;
  Connection connection_;
  SubmitLock lock_;
  std::string public_id_;
  int64_t n_jobs_ = 0;
  int64_t n_refused_ = 0;
  std::vector<NewLine> held_;
  size_t held_bytes_ = 0;
  std::unordered_map<std::string, uint64_t> held_ids_;  // to their lines
  int64_t batch_ = 0;  // batch.id of what is on its way in; 0: all is held
  std::chrono::steady_clock::time_point stored_at_;
  std::chrono::steady_clock::duration storing_{};  // what the last transaction took
};

}  // namespace nightsweep
