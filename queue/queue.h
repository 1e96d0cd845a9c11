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

// Lines that stand in the table `inbox` under one name.
struct InboxPart {
  std::string name;
  std::string model;
  int32_t priority = 0;
  int64_t last_id = 0;  // of the lines that are there now
};

struct NewBatch {
  // Names content, model and parameters: the same key is the same batch. May be empty: none.
  std::string key;
  std::string name;      // for people: the file's name
  std::string model;     // file or name as given, made absolute; may be empty
  std::string endpoint;  // "/v1/chat/completions", or "mixed"
  std::string options;   // JSON text of what was set on the command line
  int32_t priority = 0;  // higher goes first
  // The submitter's own name for this submission: the same one again adds nothing. May be empty.
  std::string idempotency_key;
  std::string content;     // names lines and parameters, to notice the same ones; may be empty
  int64_t expires_ms = 0;  // what is unfinished then gets the error "expired"; 0: never
  std::optional<InboxPart> inbox;  // taken away by the commit: where the lines came from
};

// Lengths of jobs are compared in units of so many tokens.
inline constexpr uint64_t kLengthUnit = 64;

struct NewJob {
  uint64_t line = 0;
  std::string custom_id;
  std::string model;             // file or name; empty: it names none
  std::string request;           // job_to_text()
  uint64_t expected_tokens = 0;  // prompt and answer: of a batch the longest go first
};

// A result as it is stored.
struct NewResult {
  int status_code = 200;
  std::string body;        // JSON text of the response body
  std::string nightsweep;  // JSON text of timings
  std::string error_code;  // cancelled, expired, quarantined: not answered; decides the job's state
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
  // A worker died with it and it has gained nothing since: nothing else may be claimed until its
  // first tokens are saved.
  bool is_suspect = false;
};

// A job that waits, as it was submitted.
struct WaitingRequest {
  int64_t submitted_ms = 0;
  std::string request;
};

struct ClaimRequest {
  uint32_t n = 0;
  std::optional<std::string> batch;  // only those of it
  std::vector<std::string> models;   // only those that name one of them; empty: any
  size_t n_in_flight = 0;            // jobs that this worker has at work
  bool has_unproven = false;         // one of them has not yet had a token or result saved
};

struct ClaimOutcome {
  std::vector<ClaimedJob> jobs;
  // Why none are handed out although some wait: suspects must not meet others.
  enum class Blocked {
    no,
    until_proven,  // until everything in flight has had something saved
    until_empty,   // until nothing is in flight: one of them is to run alone
  };
  Blocked blocked = Blocked::no;
};

// A claim that must stop: complete it with this error code, "cancelled" or "expired".
struct StoppedClaim {
  Claim claim;
  std::string error_code;
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

struct JobCounts {
  uint64_t waiting = 0;
  uint64_t running = 0;
  uint64_t completed = 0;
  uint64_t failed = 0;
};

struct BatchInfo {
  std::string id;
  std::string name;
  // Of OpenAI's Batch object: in_progress, completed (also when lines failed), cancelling,
  // cancelled, finalizing (the rest of an expired one is being stopped), expired.
  std::string status;
  std::string model;
  std::string endpoint;
  std::string options;
  std::string key;
  int64_t created_ms = 0;
  int64_t started_ms = 0;     // 0: not yet
  int64_t ended_ms = 0;       // 0: not yet
  int64_t cancelling_ms = 0;  // 0: nobody asked
  int64_t expires_ms = 0;     // 0: never
  int32_t priority = 0;
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

// What the sweeps of some seconds did.
struct SweepRecord {
  std::string model;  // file
  int64_t begin_ms = 0;
  int64_t end_ms = 0;
  uint64_t n_sweeps = 0;
  uint64_t prefill_tokens = 0;
  uint64_t decode_tokens = 0;  // with prefill_tokens: rows
  uint64_t new_tokens = 0;     // generated; the first of an answer comes of its prompt
  uint64_t shared_tokens = 0;  // of prompts, not computed: another one begins alike
  uint64_t evictions = 0;
  uint64_t resident_bytes = 0;  // of weights, used where they stood in the device's memory
  uint64_t link_bytes = 0;      // copied from the host's memory into the device's
  uint64_t disk_bytes = 0;      // read from the disk
  double sweep_s = 0;           // in sweeps
  double queue_s = 0;           // in transactions of the queue
  double wait_s = 0;            // operators waited for weights
  double link_wait_s = 0;       // copies into the device waited for data from the disk
  double ring_wait_s = 0;       // the same, for room in the device's ring
  double disk_busy_s = 0;       // a read was in flight
  double link_share = -1;       // of the measured rate; below 0: nothing passed it
  double disk_share = -1;
  std::string binding;   // "link", "disk", or "device": neither was half busy
  double energy_j = -1;  // below 0: not measured
};

// What the worker is told to do.
struct Control {
  bool is_paused = false;
  int64_t run_now_until_ms = 0;  // its windows do not matter till then; 0: they do
};

struct NewLine {
  NewJob job;
  // A line refused under --keep-going: it is in the batch with this result.
  std::optional<NewResult> refusal;

  // What it takes in memory.
  size_t bytes() const {
    return sizeof *this + job.custom_id.size() + job.request.size() +
           (refusal ? refusal->body.size() : 0);
  }
};

// Lines of a batch on their way in; nobody else sees any of it before commit(). May move from
// thread to thread.
class BatchWriter {
 public:
  struct Repeated {
    NewLine line;
    uint64_t first_line = 0;  // the line that has its id
  };

  // Not committed: what was added goes again.
  virtual ~BatchWriter() = default;
  // Those whose id is taken, by an earlier line of this call or another, are not added and come
  // back. Lines wait in memory while they are few; beyond, each call is one transaction, and keeps
  // others from writing for its time: some ten thousand lines are enough.
  virtual std::vector<Repeated> add(std::vector<NewLine> lines) = 0;
  // One short transaction. When a batch with the same key is there already and not cancelled, or
  // one with the same idempotency key, nothing is added and its id is returned with *existed =
  // true. Throws Error(usage) when the idempotency key stands for other content. REQUIRES: at least
  // one line was added. Called once, last.
  virtual std::string commit(const NewBatch& batch, bool* existed) = 0;
};

struct QueueOptions {
  std::function<int64_t()> now_ms;    // none: the system's clock
  std::string boot_id;                // empty: the kernel's
  int busy_timeout_ms = 10'000;       // for one lock; a transaction waits a small multiple of it
  size_t most_held_bytes = 16 << 20;  // of a BatchWriter's lines that wait in memory
};

// What doctor tells of the file and of SQLite.
struct QueueHealth {
  std::string sqlite_version;
  bool has_wal_fix = false;  // of the WAL-reset bug; below it only a rollback journal is safe
  std::string journal_mode;
  int64_t schema_version = 0;
  uint64_t file_bytes = 0;
  uint64_t n_unanswered = 0;  // lines
  // What their answers will add to the file, by the size of those that are there, or by what they
  // may be at most where there is none yet.
  uint64_t unanswered_bytes = 0;
  std::string integrity;         // "ok", or the first finding of PRAGMA integrity_check
  bool ended_uncleanly = false;  // the last worker neither runs nor said that it ended
};

class Queue {
 public:
  // Creates the file (0600, or 0660 in a folder that a group shares) and its folder where they are
  // missing. An older schema is moved up, after a backup beside the file. Refuses a newer schema, a
  // file that is no queue, links to it, and file systems without honest locks.
  static std::unique_ptr<Queue> open(const std::string& path, QueueOptions options = {});
  // The same; null where there is no file.
  static std::unique_ptr<Queue> open_existing(const std::string& path, QueueOptions options = {});
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

  // The newest batch of the same content that is not cancelled.
  virtual std::optional<BatchInfo> batch_of_content(const std::string& content) = 0;
  virtual JobCounts job_counts() = 0;  // of all batches
  // Waiting or running jobs, of one batch or of all.
  virtual uint64_t n_unfinished(const std::optional<std::string>& batch) = 0;

  // ---- the life of a batch; needs no lock ----

  // Marks the batch, ends what waits and leaves what runs to its worker, which notices within a
  // step. False: it had ended before, nothing changed.
  virtual bool cancel_batch(const std::string& batch) = 0;
  // One job. nullopt: no such job; false: it had ended before.
  virtual std::optional<bool> cancel_job(
      const std::string& batch,
      const std::string& custom_id) = 0;
  // Ends what waits of cancelled and expired batches, and jobs cancelled alone. In slices: a killed
  // one is finished by the next. Returns how many jobs it ended.
  virtual uint64_t settle() = 0;
  // Failed, cancelled, expired and quarantined jobs wait again, their results are gone; of the
  // batch or only the named ones. Returns how many. Throws Error(usage) for ids that are not there
  // or have not failed, and where the batch's key is taken.
  virtual uint64_t retry(const std::string& batch, const std::vector<std::string>& custom_ids) = 0;
  // Deletes ended batches, in slices; a killed one is finished by the next. Throws Error(usage) for
  // a batch that has not ended.
  virtual void prune(const std::vector<std::string>& batches) = 0;
  virtual std::vector<BatchInfo> batches_ended_before(int64_t ended_ms) = 0;
  // Gives the space of what was deleted back to the file system. Nobody can write meanwhile.
  virtual void compact() = 0;

  // What add_sweeps() was given, of records that ended then or later, oldest first.
  virtual std::vector<SweepRecord> sweeps_since(int64_t end_ms) = 0;
  // Deletes those that ended before; returns how many.
  virtual uint64_t prune_sweeps(int64_t end_ms) = 0;

  virtual Control control() = 0;
  virtual void set_paused(bool is_paused) = 0;
  virtual void set_run_now_until(int64_t until_ms) = 0;

  // A copy of the whole as it is at one moment, also while others write. Appears complete and at
  // once; Error(usage) when the file is there.
  virtual void backup(const std::string& path) = 0;
  virtual QueueHealth health() = 0;

  // ---- the worker's side; needs the lock ----

  // Takes the worker's lock (flock on PATH.lock) and recovers what an earlier worker left: every
  // running job goes back to the queue with its checkpoint. After a reboot or an orderly end its
  // attempt is given back. After a crash what had gained nothing becomes suspect: it is claimed in
  // halves of its group, apart from others, and buried once it has run alone in three deaths.
  // After a crash the file is checked for damage. Throws Error(queue) naming the holder when
  // another process has the lock. The lock is kept until this object goes.
  // Of `self`, pid, host and started_ms are filled in where they are empty.
  virtual void become_worker(const WorkerInfo& self) = 0;
  virtual void report_progress(const std::string& progress_json) = 0;
  virtual void add_sweeps(const SweepRecord& record) = 0;
  // The last one, needs no lock; is_alive says whether somebody is at work now.
  virtual std::optional<WorkerInfo> worker() = 0;

  // Models that waiting jobs name, in the order in which claim() would come to them; "" stands for
  // jobs that name none. Needs no lock.
  virtual std::vector<std::string> waiting_models() = 0;
  // Shows the waiting jobs of a batch that name the model, one after the other, and holds no lock
  // meanwhile; false: more than `most` wait, and none is shown. Needs no lock.
  virtual bool each_waiting(
      const std::string& batch,
      const std::string& model,
      uint32_t most,
      const std::function<void(const WaitingRequest&)>& show) = 0;
  // Counts the attempt of what it hands out. Batches of higher priority first; each level is worth
  // ten minutes of waiting, so that nothing starves. Equals share: the next place goes to the one
  // that has the fewest running. In a batch the longest expected first, so that none of them is
  // left for the end, when places stand empty; by line where less than kLengthUnit lies between
  // them.
  virtual ClaimOutcome claim(const ClaimRequest& request) = 0;
  // The same for a worker that has nothing in flight.
  std::vector<ClaimedJob> claim(
      uint32_t n,
      const std::optional<std::string>& batch,
      const std::optional<std::string>& model) {
    ClaimRequest request{.n = n, .batch = batch};
    if (model) request.models.push_back(*model);
    return claim(request).jobs;
  }
  // One transaction: checkpoints and completions together. Returns the claims that were stale; of
  // those nothing is written. A completion takes its job's checkpoint away. A checkpoint proves its
  // job: it is no suspect any more.
  virtual std::vector<Claim> save(
      const std::vector<Checkpoint>& checkpoints,
      const std::vector<Completion>& completions) = 0;
  // Back to the queue with their checkpoints, unharmed, the attempt given back (a drain, a lost
  // device). Stale ones are left alone.
  virtual void release(const std::vector<Claim>& claims) = 0;
  // Whether another connection, or settle(), has written since the last call; the first says yes.
  // Costs microseconds.
  virtual bool has_changed() = 0;
  // Claims of ours that were cancelled or have expired meanwhile.
  virtual std::vector<StoppedClaim> stopped(const std::vector<Claim>& claims) = 0;

  // Lines that came by SQL, oldest first; and a page of one part's, those with an id above `after`.
  virtual std::vector<InboxPart> inbox() = 0;
  struct InboxLine {
    int64_t id = 0;
    std::string line;
  };
  virtual std::vector<InboxLine>
  inbox_lines(const InboxPart& part, int64_t after, uint32_t limit) = 0;
};

}  // namespace nightsweep
