// The queue in one SQLite file (schema.sql, views.sql). By file: sqlite_queue.cc reading and the
// life of the object, sqlite_claim.cc who comes next, sqlite_worker.cc what a worker writes,
// sqlite_recovery.cc what a dead one left, sqlite_life.cc cancel, retry, prune and control,
// sqlite_inbox.cc lines by SQL, sqlite_sweeps.cc what the sweeps did, sqlite_batch_writer.cc a
// submit, hidden_batches.cc what comes or goes in slices, backup.cc and health.cc the file as a
// whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "queue/connection.h"
#include "queue/queue.h"
#include "queue/worker_lock.h"

namespace nightsweep {

// The statements that find the next jobs of a batch, and its suspects, and what waits of cancelled
// or expired batches. Variables: batch, model, how many; the last: how many.
extern const char* const kNextJobsSql;
extern const char* const kNextSuspectsSql;
extern const char* const kToSettleSql;

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

  std::optional<BatchInfo> batch_of_content(const std::string& content) override;
  JobCounts job_counts() override;
  uint64_t n_unfinished(const std::optional<std::string>& batch) override;

  bool cancel_batch(const std::string& batch) override;
  std::optional<bool> cancel_job(const std::string& batch, const std::string& custom_id) override;
  uint64_t settle() override;
  uint64_t retry(const std::string& batch, const std::vector<std::string>& custom_ids) override;
  void prune(const std::vector<std::string>& batches) override;
  std::vector<BatchInfo> batches_ended_before(int64_t ended_ms) override;
  void compact() override;
  std::vector<SweepRecord> sweeps_since(int64_t end_ms) override;
  uint64_t prune_sweeps(int64_t end_ms) override;
  Control control() override;
  void set_paused(bool is_paused) override;
  void set_run_now_until(int64_t until_ms) override;
  void backup(const std::string& path) override;
  QueueHealth health() override;

  void become_worker(const WorkerInfo& self) override;
  void report_progress(const std::string& progress_json) override;
  void add_sweeps(const SweepRecord& record) override;
  std::optional<WorkerInfo> worker() override;
  std::vector<std::string> waiting_models() override;
  bool each_waiting(
      const std::string& batch,
      const std::string& model,
      uint32_t most,
      const std::function<void(const WaitingRequest&)>& show) override;
  using Queue::claim;
  ClaimOutcome claim(const ClaimRequest& request) override;
  std::vector<Claim> save(
      const std::vector<Checkpoint>& checkpoints,
      const std::vector<Completion>& completions) override;
  void release(const std::vector<Claim>& claims) override;
  bool has_changed() override;
  std::vector<StoppedClaim> stopped(const std::vector<Claim>& claims) override;
  std::vector<InboxPart> inbox() override;
  std::vector<InboxLine> inbox_lines(const InboxPart& part, int64_t after, uint32_t limit) override;

  // The part of become_worker() after lock and recovery: from here on claims have an owner. Several
  // objects may be owners; who is the only one is for the lock to say.
  void register_owner(const WorkerInfo& self);

  Connection& connection() { return connection_; }

 private:
  struct Candidate;
  struct Picked {
    int64_t job = 0;
    bool is_suspect = false;
    bool runs_alone = false;
  };

  std::vector<BatchInfo> select_batches(const std::string& condition, int64_t value);
  std::vector<StoredResult>
  results(const char* sql, const std::string& batch, uint64_t after, uint32_t limit);
  std::optional<int64_t> row_of(const char* sql, const std::string& name);

  void refuse_damage_after_crash();
  void recover(bool ended_in_order);
  void blame(int64_t owner, int64_t group);
  void bury();

  std::vector<int64_t> models_of(const std::vector<std::string>& names);
  std::vector<Candidate> candidates(std::optional<int64_t> batch, int64_t now_ms);
  std::vector<Picked> pick_suspects(
      const ClaimRequest& request,
      std::optional<int64_t> batch,
      int64_t model,
      ClaimOutcome::Blocked* blocked);
  std::vector<Picked>
  pick_fairly(std::vector<Candidate> open, const std::vector<int64_t>& models, uint32_t n);
  std::vector<ClaimedJob>
  hand_out(const std::vector<Picked>& picked, int64_t group, int64_t now_ms);
  ClaimedJob read_claimed(int64_t job, uint32_t attempt, int64_t batch);

  bool write_checkpoint(const Checkpoint& checkpoint);
  bool write_completion(const Completion& completion);
  void end_waiting(int64_t job, const std::string& state, const std::string& message);
  uint64_t settle_slice();

  QueueOptions options_;
  Connection connection_;
  WorkerLock lock_;
  int64_t owner_ = 0;  // worker.id; 0: not a worker
  int64_t n_claims_ = 0;
  std::set<int64_t> gained_groups_;  // of ours, that are in `gain`
  int64_t data_version_ = -1;
};

}  // namespace nightsweep
