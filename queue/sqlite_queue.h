// The queue in one SQLite file (schema.sql). Reading and the life of the object are in
// sqlite_queue.cc, the worker's side in sqlite_worker.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "queue/connection.h"
#include "queue/queue.h"
#include "queue/worker_lock.h"

namespace nightsweep {

// The one statement that claims. Its variables: owner, group, now, [batch], [model], how many.
std::string claim_sql(bool of_batch, bool of_model);

class SqliteQueue final : public Queue {
 public:
  SqliteQueue(const std::string& path, QueueOptions options);
  ~SqliteQueue() override;

  const std::string& path() const override { return connection_.path(); }

  std::unique_ptr<BatchWriter> new_batch() override;
  std::optional<BatchInfo> batch(const std::string& id) override;
  std::optional<std::string> find_batch(const std::string& id_or_prefix) override;
  std::vector<BatchInfo> batches(uint32_t limit) override;
  std::vector<StoredResult>
  results_by_line(const std::string& batch, uint64_t after_line, uint32_t limit) override;
  std::vector<StoredResult>
  results_by_finish(const std::string& batch, uint64_t after_sequence, uint32_t limit) override;

  void become_worker(const WorkerInfo& self) override;
  void report_progress(const std::string& progress_json) override;
  std::optional<WorkerInfo> worker() override;
  std::vector<std::string> waiting_models() override;
  std::vector<ClaimedJob> claim(
      uint32_t n,
      const std::optional<std::string>& batch,
      const std::optional<std::string>& model) override;
  std::vector<Claim> save(
      const std::vector<Checkpoint>& checkpoints,
      const std::vector<Completion>& completions) override;
  void release(const std::vector<Claim>& claims) override;
  std::vector<Claim> cancelled(const std::vector<Claim>& claims) override;
  uint64_t n_unfinished(const std::optional<std::string>& batch) override;

  // The part of become_worker() after lock and recovery: from here on claims have an owner. Several
  // objects may be owners; who is the only one is for the lock to say.
  void register_owner(const WorkerInfo& self);

  Connection& connection() { return connection_; }

 private:
  // What the end or release of jobs changes in the counters of their batch.
  struct BatchChange {
    int64_t n_running = 0;
    int64_t n_completed = 0;
    int64_t n_failed = 0;
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
  };
  using BatchChanges = std::map<int64_t, BatchChange>;

  std::vector<StoredResult>
  results(const char* sql, const std::string& batch, uint64_t after, uint32_t limit);
  std::optional<int64_t> row_of(const char* sql, const std::string& name);
  void refuse_damage_after_crash();
  void recover();
  ClaimedJob read_claimed(int64_t job, uint32_t attempt, int64_t batch);
  bool write_checkpoint(const Checkpoint& checkpoint);
  bool write_completion(const Completion& completion, BatchChanges* changes);
  void apply(const BatchChanges& changes);

  QueueOptions options_;
  Connection connection_;
  WorkerLock lock_;
  int64_t owner_ = 0;  // worker.id; 0: not a worker
  int64_t n_claims_ = 0;
};

}  // namespace nightsweep
