// Queue: jobs at rest. What add() has committed survives kill -9, reboot and power cut; every job
// ends with exactly one result.
//
// The worker's writes carry a claim (job, attempt, owner); a claim that is no longer the job's
// changes nothing and the call says so by its return value. All times are milliseconds UTC.
// One object a thread. Failures of SQLite become Error(queue) (held, damaged, too new) or
// Error(storage) (full, read-only, I/O): nothing that was acknowledged is lost by them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nightsweep {

struct NewBatch {
  // Names content, model and parameters: the same key is the same batch. May be empty: none.
  std::string key;
  std::string name;      // for people: the file's name
  std::string model;     // file or name as given, made absolute; may be empty
  std::string endpoint;  // "/v1/chat/completions", or "mixed"
  std::string options;   // JSON text of what was set on the command line
  int32_t priority = 0;
};

struct NewJob {
  uint64_t line = 0;
  std::string custom_id;
  std::string model;    // empty: the batch's
  std::string request;  // job_to_text()
};

// A result as it is stored.
struct NewResult {
  int status_code = 200;
  std::string body;        // JSON text of the response body
  std::string nightsweep;  // JSON text of timings
  std::string error_code;  // for lost ones: cancelled, expired, lost; decides the job's state
  std::string error_message;
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  bool is_failure() const { return status_code >= 400 || !error_code.empty(); }
};

// A job handed to this worker. Hand it back as it came: all of it must match.
struct Claim {
  int64_t job = 0;
  uint32_t attempt = 0;  // from 1; those that were given back do not count
  int64_t group = 0;     // which claim() of this worker; a released job gets another one
  bool operator==(const Claim&) const = default;
};

struct ClaimedJob {
  Claim claim;
  std::string batch;
  std::string custom_id;
  uint64_t line = 0;
  std::string request;
  int64_t submitted_ms = 0;
  std::string checkpoint_identity;  // empty: none
  std::string checkpoint;           // as it was written
};

struct Checkpoint {
  Claim claim;
  std::string identity;
  std::string data;
};

struct Completion {
  Claim claim;
  NewResult result;
};

struct BatchCounts {
  uint64_t total = 0;
  uint64_t completed = 0;
  uint64_t failed = 0;  // cancelled and expired ones too
  uint64_t running = 0;
  uint64_t finished() const { return completed + failed; }
};

struct BatchInfo {
  std::string id;
  std::string name;
  // Of OpenAI's Batch object: "validating" until the first claim, in_progress, completed (also when
  // lines failed), cancelling, cancelled, expired, ...
  std::string status;
  std::string model;
  std::string endpoint;
  std::string options;
  std::string key;
  int64_t created_ms = 0;
  int64_t started_ms = 0;  // 0: not yet
  int64_t ended_ms = 0;    // 0: not yet
  BatchCounts counts;
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
};

struct StoredResult {
  int64_t job = 0;
  uint64_t line = 0;
  uint64_t sequence = 0;  // order in which it finished
  std::string custom_id;
  NewResult result;
};

struct WorkerInfo {
  int64_t pid = 0;
  std::string host;
  std::string model;
  std::string device;
  int64_t started_ms = 0;
  int64_t seen_ms = 0;
  std::string progress;   // JSON text
  bool is_alive = false;  // holds the lock now
};

// Jobs of a batch on their way in; nothing is visible to others before commit().
class BatchWriter {
 public:
  virtual ~BatchWriter() = default;
  // False: the id is taken; *first_line is the line that has it. Lines come in rising order.
  virtual bool add(const NewJob& job, uint64_t* first_line) = 0;
  // A line refused under --keep-going: it is in the batch with this result.
  virtual bool add_refused(const NewJob& job, const NewResult& result, uint64_t* first_line) = 0;
  // One short transaction. When a batch with the same key is there already and not cancelled,
  // nothing is added and its id is returned with *existed = true. REQUIRES: at least one line was
  // added. Called once, last.
  virtual std::string commit(const NewBatch& batch, bool* existed) = 0;
};

struct QueueOptions {
  std::function<int64_t()> now_ms;  // none: the system's clock
  std::string boot_id;              // empty: the kernel's
  int busy_timeout_ms = 10'000;     // for one lock; a transaction waits a small multiple of it
};

class Queue {
 public:
  // Creates the file and its folder where they are missing. Refuses a newer schema, a file that
  // is no queue, and file systems without honest locks.
  static std::unique_ptr<Queue> open(const std::string& path, QueueOptions options = {});
  virtual ~Queue() = default;

  virtual const std::string& path() const = 0;

  virtual std::unique_ptr<BatchWriter> new_batch() = 0;
  virtual std::optional<BatchInfo> batch(const std::string& id) = 0;
  // A unique prefix of an id, with or without "batch_", or "last", will do: gives the whole id.
  virtual std::optional<std::string> find_batch(const std::string& id_or_prefix) = 0;
  virtual std::vector<BatchInfo> batches(uint32_t limit) = 0;  // newest first

  // Results in pages: those with line (or finishing sequence) above `after`. Each call is one short
  // statement: a reader that is slow to use a page holds no lock meanwhile.
  virtual std::vector<StoredResult>
  results_by_line(const std::string& batch, uint64_t after_line, uint32_t limit) = 0;
  virtual std::vector<StoredResult>
  results_by_finish(const std::string& batch, uint64_t after_sequence, uint32_t limit) = 0;

  // ---- the worker's side; needs the lock ----

  // Takes the worker's lock (flock on PATH.lock) and recovers what an earlier worker left: every
  // running job goes back to the queue with its checkpoint. After a reboot or an orderly end its
  // attempt is given back; after a crash it gets a strike unless its claim had come further. After
  // a crash the file is checked for damage. Throws Error(queue) naming the holder when another
  // process has the lock. The lock is kept until this object goes.
  // Of `self`, pid, host and started_ms are filled in where they are empty.
  virtual void become_worker(const WorkerInfo& self) = 0;
  virtual void report_progress(const std::string& progress_json) = 0;
  // The last one, needs no lock; is_alive says whether somebody is at work now.
  virtual std::optional<WorkerInfo> worker() = 0;

  // Models that waiting jobs name, in the order in which claim() would come to them; "" stands for
  // jobs that name none. Needs no lock.
  virtual std::vector<std::string> waiting_models() = 0;
  // Up to n jobs, by priority and age; counts their attempt. `batch` or `model`: only those of it.
  virtual std::vector<ClaimedJob> claim(
      uint32_t n,
      const std::optional<std::string>& batch,
      const std::optional<std::string>& model) = 0;
  // One transaction: checkpoints and completions together. Returns the claims that were stale; of
  // those nothing is written. A completion takes its job's checkpoint away.
  virtual std::vector<Claim> save(
      const std::vector<Checkpoint>& checkpoints,
      const std::vector<Completion>& completions) = 0;
  // Back to the queue with their checkpoints, unharmed, the attempt given back (a drain, a lost
  // device). Stale ones are left alone.
  virtual void release(const std::vector<Claim>& claims) = 0;
  // Claims of ours that were cancelled meanwhile: complete them with the error code "cancelled".
  virtual std::vector<Claim> cancelled(const std::vector<Claim>& claims) = 0;
  // Waiting or running jobs, of one batch or of all. Needs no lock.
  virtual uint64_t n_unfinished(const std::optional<std::string>& batch) = 0;
};

}  // namespace nightsweep
