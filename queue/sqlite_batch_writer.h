// Collects a batch in a temporary table, which is a file of its own, and copies it into the queue
// in one transaction: memory does not grow with the number of lines, and other processes wait only
// for the copy.
#pragma once

#include <cstdint>
#include <string>

#include "queue/connection.h"
#include "queue/queue.h"

namespace nightsweep {

class SqliteBatchWriter final : public BatchWriter {
 public:
  SqliteBatchWriter(const std::string& path, const QueueOptions& options);

  bool add(const NewJob& job, uint64_t* first_line) override;
  bool add_refused(const NewJob& job, const NewResult& result, uint64_t* first_line) override;
  std::string commit(const NewBatch& batch, bool* existed) override;

 private:
  bool insert(const NewJob& job, const NewResult* refusal, uint64_t* first_line);
  std::string find_known(const NewBatch& batch);
  int64_t insert_batch(const NewBatch& batch, const std::string& public_id);
  void copy_jobs(int64_t batch, const NewBatch& settings);

  QueueOptions options_;
  Connection connection_;
  int64_t n_jobs_ = 0;
  int64_t n_refused_ = 0;
  uint64_t last_line_ = 0;
};

}  // namespace nightsweep
